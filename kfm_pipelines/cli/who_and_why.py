"""Who decides and why: the two things that every decision on the command line has to say."""

import getpass
from collections.abc import Callable
from typing import Any

import click

from kfm_pipelines.cli.letter_options import Words
from kfm_pipelines.cli.review import Reason


def who_and_why(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--by", type=Words(), default=_user, show_default="your user name", help="Who says so."),
        click.option("--reason", type=Reason(), required=True, help="Why; kept for ever and shown to everybody."),
    ):
        command = option(command)
    return command


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("this machine does not know your name; say it with --by") from None
