"""How a replay is described on the command line: times, lengths of time, and how many keys to try first."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from click.core import ParameterSource

from kfm_pipelines.console.options import StorableText, user_name

by_option = click.option(
    "--by",
    type=StorableText(),
    default=user_name("--by"),
    show_default="your user name",
    help="Who does this; in its log.",
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


class NumberRange(click.FloatRange):
    """A number in a range; "nan" is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class KeyCount(click.ParamType):  # type: ignore[type-arg]
    """A number of keys, or a share of all like 5%; never none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[0-9]{1,6}|[0-9]{1,2}(\.[0-9]+)?%|100%", str(value)):
            self.fail(f"{value!r} is neither a number of keys nor a share like 5%", param, ctx)
        if not float(str(value).rstrip("%")):
            self.fail("at least one key is tried first", param, ctx)
        return str(value)


def refuse_new_terms(replay_id: str, names: Sequence[str]) -> None:
    """One that is under way goes on as was agreed when it was started."""
    ctx = click.get_current_context()
    given = [name for name in sorted(names) if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(
            f"replay {replay_id} is under way and goes on under its own terms, without {options}; to change them "
            "cancel it and plan what is left"
        )


def resolve_key_count(count: str, total: int) -> int:
    """Of so many keys; of a share at least one."""
    if count.endswith("%"):
        return max(1, math.ceil(float(count[:-1]) * total / 100))
    return int(count)
