"""Windows of time in UTC: the hour, day or month that an instant falls in, and the label that names it in a key.

A window is half-open: its start belongs to it, its end to the next one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kfm_pipelines.declarations import WindowLength
from kfm_pipelines.errors import KeyInvalid
from kfm_pipelines.text import quote_value

_LABELS: Mapping[WindowLength, re.Pattern[str]] = {
    "hour": re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2})Z"),
    "day": re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})"),
    "month": re.compile(r"([0-9]{4})-([0-9]{2})"),
}


@dataclass(frozen=True, slots=True)
class Window:
    """[start, end) in UTC."""

    start: datetime
    end: datetime
    label: str


def window_of(instant: datetime, length: WindowLength) -> Window:
    """The window the instant falls in; ValueError for a naive datetime or one whose window leaves the calendar."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant.isoformat()} has no offset, so it falls in no window")
    try:
        hour = instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        # isoformat, because strftime does not pad years before 1000.
        if length == "hour":
            return Window(hour, hour + timedelta(hours=1), f"{hour.isoformat()[:13]}Z")
        day = hour.replace(hour=0)
        if length == "day":
            return Window(day, day + timedelta(days=1), day.isoformat()[:10])
        month = day.replace(day=1)
        return Window(month, (month + timedelta(days=31)).replace(day=1), month.isoformat()[:7])
    except OverflowError:
        raise ValueError(f"the {length} of {instant.isoformat()} reaches beyond the calendar") from None


def parse_label(label: str) -> Window:
    """The window a label names; KeyInvalid when it names none."""
    for length, pattern in _LABELS.items():
        if found := pattern.fullmatch(label):
            numbers = [int(part) for part in found.groups()]
            year, month, day, hour = numbers + [1, 1, 1, 0][len(numbers) :]
            try:
                return window_of(datetime(year, month, day, hour, tzinfo=UTC), length)
            except ValueError as error:
                raise KeyInvalid(f"time window {quote_value(label)} is not on the calendar: {error}") from None
    raise KeyInvalid(f"time window {quote_value(label)} must look like 2025-12-07T00Z, 2025-12-07 or 2025-12")
