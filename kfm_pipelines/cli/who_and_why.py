"""Who decides and why: the two things that every decision on the command line has to say."""

import getpass
from collections.abc import Callable
from typing import Any

import click

from kfm_pipelines.cli.letter_options import Words


class Reason(Words):
    """Text that says something."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        reason = super().convert(value, param, ctx)
        if not reason.strip():
            self.fail("it is empty; whoever looks at the decision later has nothing else to go by", param, ctx)
        return reason


def user_name(option: str) -> Callable[[], str]:
    """Who is logged in, as the default of this option."""

    def name() -> str:
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            raise click.UsageError(f"this machine does not know your name; say it with {option}") from None

    return name


def who_and_why(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--by", type=Words(), default=user_name("--by"), show_default="your user name", help="Who says so."
        ),
        click.option("--reason", type=Reason(), required=True, help="Why; kept for ever and shown to everybody."),
    ):
        command = option(command)
    return command
