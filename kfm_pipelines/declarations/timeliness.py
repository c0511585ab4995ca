"""When keys are worked on. It changes no published bytes, so it is not part of a dataset's digest."""

import re
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, field_validator, model_validator

from kfm_pipelines.declarations.words import DeclarationModel

_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "min": timedelta(minutes=1), "s": timedelta(seconds=1)}
MAX_DURATION = timedelta(days=36_525)  # keeps sums of times and durations inside the calendar


def _parse_duration(value: object) -> object:
    """Reads what people and `_format_duration` write: stored declarations must stay readable for years."""
    found = re.fullmatch(r"([0-9]{1,9}) ?(s|min|h|d)", value) if isinstance(value, str) else None
    if isinstance(value, timedelta):
        return value
    if found is None:
        raise ValueError("must be a number and a unit, like 90 s, 15 min, 3 h or 2 d")
    duration = int(found[1]) * _UNITS[found[2]]
    if duration > MAX_DURATION:
        raise ValueError(f"must be at most {_format_duration(MAX_DURATION)}")
    return duration


def _format_duration(duration: timedelta) -> str:
    """Formats the duration in the largest unit that divides it."""
    for unit, one in _UNITS.items():
        if not duration % one:
            return f"{duration // one} {unit}"
    return f"{duration // timedelta(seconds=1)} s"


Duration = Annotated[timedelta, BeforeValidator(_parse_duration), PlainSerializer(_format_duration, when_used="json")]
LateRule = Literal["patch", "replay", "quarantine"]


class Watermark(DeclarationModel):
    """How far a stream is complete: the latest time seen, minus `out_of_order`."""

    # A group of input.object_pattern: each of its values is a stream, and the slowest sets the watermark.
    partition: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    out_of_order: Duration = timedelta(days=1)
    idle_after: Duration = timedelta(hours=6)  # a stream that has not advanced for this long holds back no other
    skew: Duration = timedelta(hours=1)  # events dated further ahead do not advance the stream


class DueRule(DeclarationModel):
    """When a key with new events is worked on.

    `eager`: when `events` of them wait, or the first has waited for `wait`. `on_close`: when the watermark passes the
    end of the window, or after `wait`.
    """

    when: Literal["eager", "on_close"] = "eager"
    events: Annotated[int, Field(ge=1, le=100_000)] = 1
    wait: Duration | None = None

    @model_validator(mode="after")
    def _check_wait(self) -> Self:
        if self.when == "on_close" and self.events != 1:
            raise ValueError("events is for eager only; on_close waits for the watermark")
        if self.wait is None and (self.when == "on_close" or self.events > 1):
            raise ValueError("wait must be set, or a key could wait for ever")
        if self.wait is not None and self.when == "eager" and self.events == 1:
            raise ValueError("wait needs events: more than 1; with one event nothing waits")
        return self


class ServiceLevel(DeclarationModel):
    freshness: Duration | None = None  # the longest time between publications; None for no limit

    @field_validator("freshness")
    @classmethod
    def _check_freshness(cls, freshness: timedelta | None) -> timedelta | None:
        # Dagster checks freshness about once a minute and refuses less.
        if freshness is not None and freshness < timedelta(minutes=1):
            raise ValueError("must be at least 1 min")
        return freshness


class PrefixLimit(DeclarationModel):
    """The most concurrent runs over keys with this prefix."""

    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_:-]*$")]
    runs: Annotated[int, Field(ge=1, le=8)]  # dagster.yaml has a limit for each of these numbers


class Concurrency(DeclarationModel):
    """Limits on concurrent runs. None by default, because claims already keep a key to one run."""

    serial: bool = False
    limits: list[PrefixLimit] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_prefixes_disjoint(self) -> Self:
        ordered = sorted(limit.prefix for limit in self.limits)
        for shorter, longer in pairwise(ordered):
            if longer.startswith(shorter):
                raise ValueError(f"limits: prefix {longer!r} lies within {shorter!r}; a key may be under one only")
        return self

    def limit_of(self, key: str) -> PrefixLimit | None:
        return next((limit for limit in self.limits if key.startswith(limit.prefix)), None)
