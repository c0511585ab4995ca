"""How dead letters are chosen on the command line: the same words for every command."""

import re
from collections.abc import Callable
from typing import Any

import click

from kfm_pipelines.plain_text import storable
from kfm_pipelines.state.letters import TRIAGE, LetterFilter

_AGE = re.compile(r"(?P<number>[0-9]{1,6})(?P<unit>[smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Age(click.ParamType):  # type: ignore[type-arg]
    """A length of time like 90s, 15m, 2h or 7d."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _AGE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no length of time; write 90s, 15m, 2h or 7d", param, ctx)
        return float(int(found["number"]) * _SECONDS[found["unit"]])


class Words(click.ParamType):  # type: ignore[type-arg]
    """Text as the database can keep and compare it, whatever bytes the shell passed on."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return storable(str(value))


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which letters: the same words for every command."""
    for option in (
        click.option("--newer-than", type=Age(), help="Changed less than so long ago: 15m, 2h, 7d."),
        click.option("--older-than", type=Age(), help="Last changed longer ago than: 15m, 2h, 7d."),
        click.option("--key", type=Words(), help="Of this key; a * at the end stands for the rest."),
        click.option("--dataset", type=Words(), help="Of this dataset."),
        click.option("--class", "triage", type=click.Choice(TRIAGE), help="Of this class."),
    ):
        command = option(command)
    return command


def letter_filter(
    triage: str | None = None,
    dataset: str | None = None,
    key: str | None = None,
    older_than: float | None = None,
    newer_than: float | None = None,
    ids: tuple[int, ...] = (),
    states: tuple[str, ...] = ("open",),
) -> LetterFilter:
    return LetterFilter(ids, triage, dataset, key, older_than, newer_than, states)


def is_choice(ids: tuple[int, ...], chosen: dict[str, Any]) -> bool:
    return bool(ids) or any(value is not None for value in chosen.values())


def require_choice(ids: tuple[int, ...], chosen: dict[str, Any]) -> None:
    if not is_choice(ids, chosen):
        raise click.UsageError("name letters, or choose them with --class, --dataset, --key or an age")
