"""How a replay is described on the command line: times, lengths of time, and how many keys to try first."""

import math
import re
from datetime import UTC, datetime
from typing import Any

import click

from kfm_pipelines.cli.letter_options import Words
from kfm_pipelines.cli.who_and_why import user_name

by_option = click.option(
    "--by", type=Words(), default=user_name("--by"), show_default="your user name", help="Who does this; in its log."
)


class Instant(click.ParamType):  # type: ignore[type-arg]
    """A time in UTC like 2025-12-04 or 2025-12-04T06:00Z."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            found = datetime.fromisoformat(str(value))
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time; write 2025-12-04 or 2025-12-04T06:00Z", param, ctx)


class SomeKeys(click.ParamType):  # type: ignore[type-arg]
    """A number of keys, or a share of all like 5%."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[0-9]{1,6}|[0-9]{1,2}(\.[0-9]+)?%|100%", str(value)):
            self.fail(f"{value!r} is neither a number of keys nor a share like 5%", param, ctx)
        return str(value)


def number_of(some: str, total: int) -> int:
    """Of so many keys; of a share at least one."""
    if some.endswith("%"):
        return max(1, math.ceil(float(some[:-1]) * total / 100))
    return int(some)
