"""The samples of a dataset, the windows they cover, and helpers to make them."""

import hashlib
import io
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from kfm_pipelines.declarations import WindowLength
from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.messages import s3_notification

if TYPE_CHECKING:
    import pyarrow as pa


class SampleMaker(Protocol):
    """Returns object key and bytes for one window."""

    def __call__(self, window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]: ...


ProviderMessage = Callable[[datetime, str], Mapping[str, Any]]


class FolderMaker(Protocol):
    """Returns bytes by object key for one window."""

    def __call__(self, window_start: datetime, *, seed: int = 0) -> Mapping[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """`windows` returns the starts of consecutive windows, from the one that contains an instant. If a provider
    announces folders, `beside` returns their other objects, and `message` what its topic says, from the window and the
    bucket."""

    make: SampleMaker
    windows: Callable[[datetime, int], tuple[datetime, ...]]
    beside: FolderMaker | None = None
    message: ProviderMessage | None = None

    def objects(self, window_start: datetime, *, seed: int = 0) -> dict[str, bytes]:
        """Returns all objects of a window; the one that completes them comes last."""
        beside = self.beside(window_start, seed=seed) if self.beside else {}
        object_key, data = self.make(window_start, seed=seed)
        return {**beside, object_key: data}

    def announcement(self, window_start: datetime, bucket: str, objects: Mapping[str, bytes]) -> Mapping[str, Any]:
        """Returns what a provider's topic says of these objects: S3's own notification, unless it has another form."""
        if self.message is not None:
            return self.message(window_start, bucket)
        object_key, data = list(objects.items())[-1]
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()  # as S3 makes it
        return s3_notification(bucket, object_key, etag, len(data), None, window_start)


def hours(start: datetime, count: int) -> tuple[datetime, ...]:
    first = window_of(start, "hour").start
    return tuple(first + timedelta(hours=step) for step in range(count))


def tuesdays(start: datetime, count: int) -> tuple[datetime, ...]:
    """Weekly maps are valid from a Tuesday."""
    day = window_of(start, "day").start
    first = day - timedelta(days=(day.weekday() - 1) % 7)
    return tuple(first + timedelta(weeks=step) for step in range(count))


def months(start: datetime, count: int) -> tuple[datetime, ...]:
    return _consecutive(start, count, "month")


def years(start: datetime, count: int) -> tuple[datetime, ...]:
    return _consecutive(start, count, "year")


def _consecutive(start: datetime, count: int, length: WindowLength) -> tuple[datetime, ...]:
    found: list[datetime] = []
    for _ in range(count):
        window = window_of(start, length)
        found.append(window.start)
        start = window.end
    return tuple(found)


def seeded_random(*seed: object) -> random.Random:
    # Python hashes a text seed with SHA-512: the same on every platform, unlike hash().
    return random.Random(":".join(map(str, seed)))  # noqa: S311 -- invented data, no secret


def to_parquet(table: "pa.Table") -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
