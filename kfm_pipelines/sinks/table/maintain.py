"""Upkeep of a table: small files put together, old snapshots expired, and files that nothing refers to removed."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.table import tables as log
from kfm_pipelines.sinks.table.clean import remove_orphans, remove_snapshots
from kfm_pipelines.sinks.table.commit import commit_to, writing
from kfm_pipelines.sinks.table.rows import digest_of_rows
from kfm_pipelines.sinks.table.schema import KEY, WINDOW, period_of
from kfm_pipelines.sinks.table.tables import Purpose
from kfm_pipelines.sinks.table.warehouse import load_table
from kfm_pipelines.text import make_printable

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

SMALL_FILES = 8  # in one partition, from which on they are put together
SMALL_BYTES = 4 * 1024 * 1024
SNAPSHOTS_KEPT = 50  # besides the last of each day
MAX_ROWS = 5_000_000  # of one period, which is rewritten at once
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Upkeep:
    dataset: str
    compacted: int = 0  # periods
    expired: int = 0  # snapshots
    removed: int = 0  # files that nothing referred to
    too_large: tuple[str, ...] = ()  # periods

    def __str__(self) -> str:
        done = f"{self.dataset}: {self.compacted} periods compacted, {self.expired} snapshots expired"
        large = f"; too large to compact: {', '.join(self.too_large)}" if self.too_large else ""
        return make_printable(f"{done}, {self.removed} unused files removed{large}")


@dataclass(frozen=True, slots=True)
class PartitionPeriod:
    """The windows that begin in one partition."""

    start: datetime
    end: datetime
    rows: int

    @property
    def condition(self) -> "BooleanExpression":
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

        return And(
            GreaterThanOrEqual(WINDOW, self.start.isoformat()),
            LessThan(WINDOW, self.end.isoformat()),
        )


def maintain(services: Services, dataset: Dataset) -> Upkeep:
    """Each period is a commit of its own, so that publications come in between."""
    table = load_table(services, dataset)
    if table is None or dataset.tables is None:
        return Upkeep(dataset.dataset)
    periods = [*_crowded_periods(table, period_of(dataset))]
    compacted = [one for one in periods if one.rows <= MAX_ROWS]
    for one in compacted:
        with writing(services, dataset):
            commit_to(services, dataset, table.refresh(), Purpose("compaction"), partial(_rewrite, one))
    with writing(services, dataset):
        expired = _expire(services, table.refresh(), dataset.tables.history_days)
        removed = len(remove_orphans(services, dataset, table.refresh()))
    log.forget_commits(services.database, dataset.dataset, dataset.tables.history_days)
    large = tuple(f"{one.start:%Y-%m-%d}" for one in periods if one not in compacted)
    return Upkeep(dataset.dataset, len(compacted), expired, removed, large)


def _crowded_periods(table: "Table", period: str) -> Iterator[PartitionPeriod]:
    small: Counter[tuple[int, str]] = Counter()
    rows: Counter[int] = Counter()
    for task in table.scan(selected_fields=(KEY,)).plan_files():
        number = _period_number(task.file.partition[0])
        rows[number] += task.file.record_count
        if task.file.file_size_in_bytes < SMALL_BYTES:
            small[number, str(task.file.partition)] += 1
    for number in sorted({number for (number, _), count in small.items() if count >= SMALL_FILES}):
        start, end = (_beginning(number + step, period) for step in (0, 1))
        yield PartitionPeriod(start, end, rows[number])


def _period_number(value: int | date) -> int:
    """Returns days, months or years since 1970."""
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def _beginning(number: int, period: str) -> datetime:
    if period == "day":
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)
    year, month = (1970 + number, 0) if period == "year" else (1970 + number // 12, number % 12)
    return datetime(year, month + 1, 1, tzinfo=UTC)


def _rewrite(period: PartitionPeriod, table: "Table", branch: str) -> None:
    """Writes the rows of a period anew, in order of window and key, and compares what is there then."""
    condition = period.condition
    rows = table.scan(condition).use_ref(branch).to_arrow().sort_by([(WINDOW, "ascending"), (KEY, "ascending")])
    table.overwrite(rows, overwrite_filter=condition, branch=branch, snapshot_properties={"kfm.compaction": "true"})
    found = table.scan(condition).use_ref(branch).to_arrow()
    names = rows.column_names
    if len(found) != len(rows) or digest_of_rows(found, names) != digest_of_rows(rows, names):
        raise IntegrityBroken(f"the table has other rows after its files were put together: {len(found)}")


def thin_out(table: "Table") -> int:
    """Removes the oldest snapshots without a tag as soon as there are many: every commit reads and writes the list of
    them. Returns how many."""
    if len(table.metadata.snapshots) <= 2 * SNAPSHOTS_KEPT or len(table.refresh().metadata.snapshots) <= SNAPSHOTS_KEPT:
        return 0
    named = {ref.snapshot_id for ref in table.refs().values()}
    unnamed = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in named]
    gone = unnamed[:-SNAPSHOTS_KEPT]
    remove_snapshots(table, gone)
    return len(gone)


def _expire(services: Services, table: "Table", days: int) -> int:
    """Removes tags older than the history that is kept, and snapshots without a tag that are older than a day."""
    oldest = services.today() - timedelta(days=days)
    tags = [name for name in table.refs() if _DAY.fullmatch(name) and date.fromisoformat(name) < oldest]
    if tags:
        with table.manage_snapshots() as manage:
            for name in tags:
                manage.remove_tag(name)
        table.refresh()
    kept = {ref.snapshot_id for ref in table.refs().values()}
    today = services.today()
    until = datetime(today.year, today.month, today.day, tzinfo=UTC).timestamp() * 1000
    old = [
        one.snapshot_id for one in table.metadata.snapshots if one.timestamp_ms < until and one.snapshot_id not in kept
    ]
    remove_snapshots(table, old)
    return len(old)
