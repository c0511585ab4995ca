"""When things are due, and when they are late: how a dataset's stream advances, which windows wait, what lateness does.

All of it is about when a key is worked on, none of it about what comes out, so it is no part of a dataset's digest.
"""

import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, field_validator, model_validator

from kfm_pipelines.declarations.words import DeclarationModel

_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
MAX_DURATION = timedelta(days=36_525)  # what is reckoned with durations has to stay within the years that a clock knows
_LARGEST_FIRST = {"d": timedelta(days=1), "h": timedelta(hours=1), "min": timedelta(minutes=1)}


def _parse_duration(value: object) -> object:
    """As people write it, and as `_written` does: what was declared for a release must be read again years later."""
    found = re.fullmatch(r"([0-9]{1,9}) ?(s|min|h|d)", value) if isinstance(value, str) else None
    if isinstance(value, timedelta):
        return value
    if found is None:
        raise ValueError("must be a number and a unit, like 90 s, 15 min, 3 h or 2 d")
    duration = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if duration > MAX_DURATION:
        raise ValueError(f"must be at most {_format_duration(MAX_DURATION)}")
    return duration


def _format_duration(duration: timedelta) -> str:
    """In the largest unit that divides it."""
    for unit, one in _LARGEST_FIRST.items():
        if not duration % one:
            return f"{duration // one} {unit}"
    return f"{duration // timedelta(seconds=1)} s"


Duration = Annotated[timedelta, BeforeValidator(_parse_duration), PlainSerializer(_format_duration, when_used="json")]
LateRule = Literal["patch", "replay", "quarantine"]


class Watermark(DeclarationModel):
    """How far a stream is complete: the furthest it has reached, less what may still come out of order."""

    # A group of input.object_pattern: each of its values is a stream of its own, and all have to get there.
    partition: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    out_of_order: Duration = timedelta(days=1)
    idle_after: Duration = timedelta(hours=6)  # a stream that has not advanced for so long holds back no other
    skew: Duration = timedelta(hours=1)  # what is dated further ahead than that is no sign of progress


class DueRule(DeclarationModel):
    """When a key with something new is worked on. `eager`: at once, or when so many events wait, or the first of them
    has waited so long. `on_close`: when the watermark passes the end of its window, or at the latest after so long."""

    when: Literal["eager", "on_close"] = "eager"
    events: Annotated[int, Field(ge=1, le=100_000)] = 1
    wait: Duration | None = None

    @model_validator(mode="after")
    def _check_wait(self) -> Self:
        if self.when == "on_close" and self.events != 1:
            raise ValueError("events is for eager only; on_close waits for the watermark")
        if self.wait is None and (self.when == "on_close" or self.events > 1):
            raise ValueError("wait must say how long at most, or a key could wait for ever")
        if self.wait is not None and self.when == "eager" and self.events == 1:
            raise ValueError("wait needs events: more than 1; with one event nothing waits")
        return self


class ServiceLevel(DeclarationModel):
    freshness: Duration | None = None  # how long after a publication the next has to come; unsaid, nobody waits for it

    @field_validator("freshness")
    @classmethod
    def _check_freshness(cls, freshness: timedelta | None) -> timedelta | None:
        # Dagster looks at freshness about once a minute, and refuses less.
        if freshness is not None and freshness < timedelta(minutes=1):
            raise ValueError("must be at least 1 min")
        return freshness
