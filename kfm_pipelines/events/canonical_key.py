"""The canonical key `{source}:{aoi}:{h3_res}:{time_window}:{transform_version}`, and the time windows in it.

The key names the WAL record, the outputs, the lineage nodes and the Dagster partition. A change to how it is derived
moves every key, so it needs a new KEY_DERIVATION_VERSION and a changelog note.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from kfm_pipelines.declarations import WindowLength
from kfm_pipelines.errors import KeyInvalid
from kfm_pipelines.text import quote_value

KEY_DERIVATION_VERSION = 1

# No dot: it breaks Dagster's partition selector. No slash, so a key is always one path segment.
_PART = re.compile(r"[A-Za-z0-9_-]+")
_H3_RES = re.compile(r"none|[0-9]|1[0-5]")


@dataclass(frozen=True, slots=True)
class CanonicalKey:
    """Five checked parts; `parse` reads back what `str` writes."""

    source: str
    aoi: str
    h3_res: str
    time_window: str
    transform_version: str

    def __post_init__(self) -> None:
        for name, part in zip(self.__slots__, self._parts(), strict=True):
            if not _PART.fullmatch(part):
                raise KeyInvalid(f"key part {name} must be letters, digits, _ or -, not {quote_value(part)}")
        if not _H3_RES.fullmatch(self.h3_res):
            raise KeyInvalid(f"key part h3_res must be none or 0 to 15, not {quote_value(self.h3_res)}")

    def __str__(self) -> str:
        return ":".join(self._parts())

    def _parts(self) -> tuple[str, ...]:
        # Not dataclasses.astuple, which deep-copies each part: this runs for every event.
        return (self.source, self.aoi, self.h3_res, self.time_window, self.transform_version)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a key. Raises KeyInvalid naming the wrong part."""
        parts = text.split(":")
        if len(parts) != 5:
            raise KeyInvalid(
                f"key {quote_value(text)} has {len(parts)} parts; five are needed: "
                "source:aoi:h3_res:time_window:transform_version"
            )
        return cls(*parts)


_LABELS: Mapping[WindowLength, re.Pattern[str]] = {
    "hour": re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2})Z"),
    "day": re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})"),
    "week": re.compile(r"([0-9]{4})-W([0-9]{2})"),
    "month": re.compile(r"([0-9]{4})-([0-9]{2})"),
    "year": re.compile(r"([0-9]{4})"),
}


@dataclass(frozen=True, slots=True)
class Window:
    """The hour, day, week, month or year [start, end) in UTC, and its label in a key."""

    start: datetime
    end: datetime
    label: str


def window_of(instant: datetime, length: WindowLength) -> Window:
    """Returns the window of an instant. Raises ValueError if it is naive or its window leaves the calendar."""
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
        if length == "week":
            year, week, weekday = day.isocalendar()
            monday = day - timedelta(days=weekday - 1)
            return Window(monday, monday + timedelta(days=7), f"{year:04}-W{week:02}")
        month = day.replace(day=1)
        if length == "month":
            return Window(month, (month + timedelta(days=31)).replace(day=1), month.isoformat()[:7])
        year_start = month.replace(month=1)
        return Window(year_start, (year_start + timedelta(days=366)).replace(day=1), year_start.isoformat()[:4])
    except OverflowError:
        raise ValueError(f"the {length} of {instant.isoformat()} reaches beyond the calendar") from None


def parse_label(label: str) -> Window:
    """Returns the window with this label. Raises KeyInvalid when there is none."""
    for length, pattern in _LABELS.items():
        if found := pattern.fullmatch(label):
            numbers = [int(part) for part in found.groups()]
            try:
                if length == "week":
                    return window_of(start_of_week(*numbers), length)
                year, month, day, hour = numbers + [1, 1, 1, 0][len(numbers) :]
                return window_of(datetime(year, month, day, hour, tzinfo=UTC), length)
            except ValueError as error:
                raise KeyInvalid(f"time window {quote_value(label)} is not on the calendar: {error}") from None
    raise KeyInvalid(
        f"time window {quote_value(label)} must look like 2025-12-07T00Z, 2025-12-07, 2025-W49, 2025-12 or 2025"
    )


def start_of_week(year: int, week: int) -> datetime:
    """Returns the Monday of an ISO week. Raises ValueError if the year has no such week."""
    return datetime.fromisocalendar(year, week, 1).replace(tzinfo=UTC)
