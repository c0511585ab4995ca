"""A dataset of several streams, events of it told in any order, and what has to be known after them by arithmetic."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kfm_pipelines.datasets import Dataset, Datasets
from kfm_pipelines.declarations import Due, LateRule, Watermark
from kfm_pipelines.events import IngestEvent, fold
from kfm_pipelines.events.progress import Advance, Step, envelope, is_progress, sweep
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.state.late_lane import LateFilter, late_events
from kfm_pipelines.state.recording import Tally, record
from kfm_pipelines_tests.events.given import declared, notice

DATASET = "usgs/streamflow"
START = datetime(2025, 12, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULE = Watermark(
    partition="site", out_of_order=timedelta(hours=2), idle_after=timedelta(hours=3), skew=timedelta(hours=1)
)
PATTERN = (
    r"usgs/streamflow/(?P<year>\d{4})/(?P<month>\d{2})/(?P<day>\d{2})/(?P<hour>\d{2})/(?P<site>[a-z]+)-?[0-9]*\.parquet"
)
# After it, all streams have been idle for long.
LATER = START + 400 * HOUR


def hours(number: float) -> datetime:
    return START + number * HOUR


def streams(late: LateRule = "patch", due: Due | None = None, watermark: Watermark = RULE) -> Datasets:
    """Streamflow, with a stream for each site."""
    one = declared()[DATASET]
    changed = {
        "input": one.input.model_copy(update={"object_pattern": PATTERN}),
        "watermark": watermark,
        "due": due or Due(),
        "late": late,
    }
    return Datasets({DATASET: one.model_copy(update=changed)})


def told(about: int, made: float, site: str = "a", part: int = 0, **fields: Any) -> IngestEvent:
    """An event about that hour, made that many hours after START. Told at another time it is the same event."""
    path = f"usgs/streamflow/{hours(about):%Y/%m/%d/%H}/{site}-{part}.parquet"
    identity = hashlib.sha256(f"{fields.get('change')} {path}".encode()).hexdigest()
    fields = {"object_key": path, "identity": identity, "event_time": hours(made), "etag": identity[:32], **fields}
    return fold(notice(**fields), streams())


def hear(database: Database, datasets: Datasets, *events: IngestEvent, now: datetime | None = None) -> Tally:
    """All in one batch, each in a message of its own."""
    return record(database, "q", [Delivery("{}", (one,)) for one in events], datasets, now=now).tally


def forget_all(database: Database) -> None:
    for table in ("late", "late_again", "inbox", "keys", "advances", "watermark_steps", "checkpoints", "stream_rules"):
        database.execute(f"DELETE FROM kfm.{table}")


@dataclass(frozen=True)
class Known:
    """What the tables say, as values that compare."""

    advances: list[tuple[str, Advance]]
    steps: list[Step]
    late: dict[str, datetime]


def known(database: Database) -> Known:
    advances = database.fetch("SELECT partition, at, reached FROM kfm.advances ORDER BY partition, at")
    steps = database.fetch("SELECT at, watermark FROM kfm.watermark_steps ORDER BY at")
    late = late_events(database, LateFilter(state=None))
    return Known(
        [(row["partition"], Advance(row["at"], row["reached"])) for row in advances],
        [Step(**row) for row in steps],
        {one.identity: one.watermark for one in late if one.watermark},
    )


def reckoned(events: Sequence[IngestEvent], dataset: Dataset) -> Known:
    """The same, of all events at once."""
    rule = dataset.watermark
    points: defaultdict[str, list[Advance]] = defaultdict(list)
    made: dict[str, datetime] = {}
    for event in events:
        made[event.identity] = min(made.get(event.identity, event.event_time), event.event_time)
        if event.change == "created" and is_progress(event.event_time, event.data_time, rule):
            points[event.partition].append(Advance(event.event_time, event.data_time))
    advances = [(name, one) for name in sorted(points) for one in envelope(points[name])]
    steps = sweep({}, None, advances, rule)
    ends = {event.identity: event.window_end for event in events}
    marks = {identity: _watermark_before(steps, at) for identity, at in made.items()}
    late = {identity: mark for identity, mark in marks.items() if mark and mark >= ends[identity]}
    return Known(advances, steps, late)


def checkpoints(database: Database) -> Mapping[str, datetime]:
    return {row["partition"]: row["watermark"] for row in database.fetch("SELECT * FROM kfm.checkpoints")}


def checkpoints_reckoned(expected: Known, now: datetime, rule: Watermark) -> Mapping[str, datetime]:
    """Where they are when nothing was promised on the way."""
    reached = {name: one.reached - rule.out_of_order for name, one in expected.advances if one.at <= now}
    marks = [step.watermark for step in expected.steps if step.at <= now]
    return {**reached, **({"*": marks[-1]} if marks else {})}


def _watermark_before(steps: Sequence[Step], time: datetime) -> datetime | None:
    marks = [step.watermark for step in steps if step.at < time]
    return marks[-1] if marks else None
