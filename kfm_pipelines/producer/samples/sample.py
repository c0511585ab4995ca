"""What a sample is: the windows it has objects for, and how the object of one is made."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from kfm_pipelines.events.canonical_key import window_of

if TYPE_CHECKING:
    import pyarrow as pa


class SampleMaker(Protocol):
    """Makes the object of one window: its key and its bytes."""

    def __call__(self, window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """The samples of one dataset. `windows` gives the starts of so many windows in a row, from the one that holds an
    instant."""

    make: SampleMaker
    windows: Callable[[datetime, int], tuple[datetime, ...]]


def hours(start: datetime, count: int) -> tuple[datetime, ...]:
    first = window_of(start, "hour").start
    return tuple(first + timedelta(hours=step) for step in range(count))


def tuesdays(start: datetime, count: int) -> tuple[datetime, ...]:
    """The days the weekly maps are valid for."""
    day = window_of(start, "day").start
    first = day - timedelta(days=(day.weekday() - 1) % 7)
    return tuple(first + timedelta(weeks=step) for step in range(count))


def months(start: datetime, count: int) -> tuple[datetime, ...]:
    found: list[datetime] = []
    for _ in range(count):
        month = window_of(start, "month")
        found.append(month.start)
        start = month.end
    return tuple(found)


def to_parquet(table: "pa.Table") -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
