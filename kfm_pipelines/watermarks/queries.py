"""Read-only queries: the watermark of datasets, and which stream holds it back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.state.database import Database, pairs
from kfm_pipelines.watermarks.progress import Advance, is_active
from kfm_pipelines.watermarks.steps import REACHED_BY_NOW

WHOLE_DATASET = "*"  # the row of the dataset among those of its partitions


def read_watermark(database: Database, dataset: str) -> datetime | None:
    """Returns the time up to which all windows are closed; None when none is."""
    query = "SELECT watermark FROM kfm.checkpoints WHERE dataset = %(dataset)s AND partition = %(whole)s"
    rows = database.fetch(query, {"dataset": dataset, "whole": WHOLE_DATASET})
    return rows[0]["watermark"] if rows else None


def window_ends_after(database: Database, keys: Sequence[str], until: datetime | None) -> dict[str, datetime]:
    query = """
        SELECT key, window_end FROM kfm.keys
        WHERE key = ANY(%(keys)s) AND window_end > coalesce(%(until)s::timestamptz, '-infinity')
    """
    return pairs(database.fetch(query, {"keys": list(keys), "until": until}))


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One partition of a dataset; an idle one does not hold back the watermark."""

    partition: str
    watermark: datetime | None
    reached: datetime
    advanced_at: datetime
    active: bool


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    dataset: str
    watermark: datetime | None
    lag: timedelta | None
    streams: tuple[StreamStatus, ...]

    @property
    def held_back_by(self) -> str | None:
        """Returns the slowest active stream; None when all are idle."""
        active = [stream for stream in self.streams if stream.active]
        return min(active, key=lambda stream: (stream.reached, stream.partition)).partition if active else None


def read_watermarks(database: Database) -> dict[str, datetime]:
    query = "SELECT dataset, watermark FROM kfm.checkpoints WHERE partition = %(whole)s ORDER BY dataset"
    return pairs(database.fetch(query, {"whole": WHOLE_DATASET}))


def read_watermark_status(database: Database, dataset: Dataset, now: datetime | None = None) -> WatermarkStatus:
    named = {"dataset": dataset.dataset, "now": now}
    rows = database.fetch("SELECT partition, watermark FROM kfm.checkpoints WHERE dataset = %(dataset)s", named)
    [clock] = database.fetch("SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now", named)
    marks = {row["partition"]: row["watermark"] for row in rows}
    streams = []
    for row in database.fetch(REACHED_BY_NOW, {**named, "now": clock["now"]}):
        active = is_active(Advance(row["at"], row["reached"]), clock["now"], dataset.watermark)
        mark = marks.get(row["partition"])
        streams.append(StreamStatus(row["partition"], mark, row["reached"], row["at"], active))
    whole = marks.get(WHOLE_DATASET)
    return WatermarkStatus(dataset.dataset, whole, clock["now"] - whole if whole else None, tuple(streams))
