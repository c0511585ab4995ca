"""The samples of a dataset, the windows they cover, and helpers to make them."""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from kfm_pipelines.events.canonical_key import window_of

if TYPE_CHECKING:
    import pyarrow as pa


class SampleMaker(Protocol):
    """Returns object key and bytes for one window."""

    def __call__(self, window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """`windows` returns the starts of consecutive windows, from the one that contains an instant."""

    make: SampleMaker
    windows: Callable[[datetime, int], tuple[datetime, ...]]


def hours(start: datetime, count: int) -> tuple[datetime, ...]:
    first = window_of(start, "hour").start
    return tuple(first + timedelta(hours=step) for step in range(count))


def tuesdays(start: datetime, count: int) -> tuple[datetime, ...]:
    """Weekly maps are valid from a Tuesday."""
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


def seeded_random(*seed: object) -> random.Random:
    # Python hashes a text seed with SHA-512: the same on every platform, unlike hash().
    return random.Random(":".join(map(str, seed)))  # noqa: S311 -- invented data, no secret


def to_parquet(table: "pa.Table") -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
