"""Option types and options that several commands share."""

import getpass
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from kfm_pipelines.text import make_storable

_AGE = re.compile(r"(?P<number>[0-9]{1,6})(?P<unit>[smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

default_option = partial(click.option, show_default=True)


class Age(click.ParamType):  # type: ignore[type-arg]
    """A duration such as 90s, 15m, 2h or 7d."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _AGE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration; write 90s, 15m, 2h or 7d", param, ctx)
        return float(int(found["number"]) * _SECONDS[found["unit"]])


def read_instant(text: str) -> datetime:
    """Returns a time that is in UTC unless it has another offset. Raises ValueError or OverflowError."""
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


class Instant(click.ParamType):  # type: ignore[type-arg]
    """A time in UTC like 2025-12-04 or 2025-12-04T06:00Z."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return read_instant(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time; write 2025-12-04 or 2025-12-04T06:00Z", param, ctx)


class StorableText(click.ParamType):  # type: ignore[type-arg]
    """Text in the form that the database can store and compare, whatever bytes the shell passed."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return make_storable(str(value))


class Reason(StorableText):
    """Text that is not blank."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        reason = super().convert(value, param, ctx)
        if not reason.strip():
            self.fail("it is empty; the audit needs to know why", param, ctx)
        return reason


def user_name(option: str) -> Callable[[], str]:
    """Returns a default for this option: the name of the user who is logged in."""

    def name() -> str:
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            raise click.UsageError(f"this machine does not know your name; give it with {option}") from None

    return name


def name_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--by", type=StorableText(), default=user_name("--by"), show_default="your user name", help=help_text
    )


by_option = name_option("Who decides.")


def actor_and_reason_options(command: Callable[..., Any]) -> Callable[..., Any]:
    reason = click.option("--reason", type=Reason(), required=True, help="Why; kept in the audit, visible to everyone.")
    return reason(by_option(command))
