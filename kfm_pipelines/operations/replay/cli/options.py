"""Options and argument types of `kfm replay`."""

import math
import re
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from kfm_pipelines.console.options import StorableText, name_option

by_option = name_option("Your name for the replay's log.")
here_option = click.option("--here", is_flag=True, help="Run it in this process, without a daemon.")
replay_argument = click.argument("replay_id", metavar="ID", type=StorableText())


class NumberRange(click.FloatRange):
    """A number in a range, which excludes "nan"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class KeyCount(click.ParamType):  # type: ignore[type-arg]
    """A positive number of keys, or a share of all keys like 5%."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[0-9]{1,6}|[0-9]{1,2}(\.[0-9]+)?%|100%", str(value)):
            self.fail(f"{value!r} is neither a number of keys nor a share like 5%", param, ctx)
        if not float(str(value).rstrip("%")):
            self.fail("the canary needs at least 1 key", param, ctx)
        return str(value)


def refuse_new_terms(replay_id: str, names: Sequence[str]) -> None:
    """Refuses options that a running replay took when it was started."""
    ctx = click.get_current_context()
    given = [name for name in sorted(names) if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(
            f"replay {replay_id} is running under its own terms, so {options} cannot be given; to change them, cancel "
            "it and plan the rest"
        )


def resolve_key_count(count: str, total: int) -> int:
    if count.endswith("%"):
        return max(1, math.ceil(float(count[:-1]) * total / 100))
    return int(count)
