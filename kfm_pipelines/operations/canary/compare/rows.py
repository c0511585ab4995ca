"""Compares the rows of two tables value by value, which finds what statistics miss, such as swapped values. Pure.

Rows are matched by the primary key where it is unique and without nulls in both tables. Otherwise, as when keys are
withheld or newly assigned in each release, the tables are compared as bags of rows. Values must be exactly equal; null
equals null and NaN equals NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kfm_pipelines.care.published_table import RECORD
from kfm_pipelines.gates.quality.table import is_strictly_increasing
from kfm_pipelines.operations.canary.compare.columns import format_name

MAX_NAMED_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class ChangedColumn:
    column: str
    rows: int


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows that only one table has, and rows that differ in a shared column."""

    rows: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    columns: tuple[ChangedColumn, ...] = ()  # most changed first
    matched: bool = True  # by the primary key; if False, compared without order

    @property
    def percent(self) -> float:
        return 100 * (self.added + self.removed + self.changed) / self.rows if self.rows else 0.0

    def __str__(self) -> str:
        where = ", ".join(one.column for one in self.columns[:MAX_NAMED_COLUMNS])
        how = "" if self.matched else ", compared without their order since no key tells which is which"
        return (
            f"{self.percent:.3g} % of the rows differ: {self.added} added, {self.removed} removed, "
            f"{self.changed} changed{f' in {where}' if where else ''}{how}"
        )


def row_changes(published: pa.Table, candidate: pa.Table, primary_key: Sequence[str]) -> RowChanges:
    """Compares by the declared primary key, which need not be in either table."""
    names = [name for name in published.column_names if name in candidate.column_names]
    before, after = published.select(names), _cast_to_schema(candidate.select(names), published.schema)
    try:
        both = _match_rows(before, after, primary_key)
    except pa.ArrowException:  # a type that cannot be a key
        both = None
    if both is None:
        return _unmatched_changes(before, after)
    shared = both[0].num_rows
    return _matched_changes(*both, added=after.num_rows - shared, removed=before.num_rows - shared)


def _cast_to_schema(candidate: pa.Table, schema: pa.Schema) -> pa.Table:
    """Casts columns of another type where possible, to compare them by value."""
    for place, name in enumerate(candidate.column_names):
        wanted = schema.field(name).type
        if candidate.column(name).type != wanted:
            try:
                candidate = candidate.set_column(place, name, candidate.column(name).cast(wanted))
            except pa.ArrowException:
                continue
    return candidate


def _match_rows(before: pa.Table, after: pa.Table, primary_key: Sequence[str]) -> tuple[pa.Table, pa.Table] | None:
    """Returns the shared rows in the same order, or None when the key cannot match them."""
    if not primary_key or not set(primary_key) <= set(before.column_names):
        return None
    keys, others = before.select(primary_key), after.select(primary_key)
    if not _is_key(keys):
        return None
    if keys.equals(others):  # the usual case, because compute sorts rows
        return before, after
    if not _is_key(others):
        return None
    names = [str(number) for number in range(len(primary_key))]
    here = pa.table([*keys.columns, np.arange(keys.num_rows)], names=[*names, "here"])
    there = pa.table([*others.columns, np.arange(others.num_rows)], names=[*names, "there"])
    both = here.join(there, names, join_type="inner")
    return before.take(both["here"]), after.take(both["there"])


def _is_key(table: pa.Table) -> bool:
    if any(column.null_count for column in table.columns):
        return False
    if table.num_rows < 2 or is_strictly_increasing(table):
        return True
    return bool(table.group_by(table.column_names).aggregate([]).num_rows == table.num_rows)


def _matched_changes(before: pa.Table, after: pa.Table, *, added: int, removed: int) -> RowChanges:
    changed = np.zeros(before.num_rows, dtype=bool)
    columns = []
    for name in before.column_names:
        differs = _difference_mask(before.column(name), after.column(name))
        changed |= differs
        columns.append(ChangedColumn(format_name(name), int(differs.sum())))
    rows = before.num_rows + added + removed
    return RowChanges(rows, added, removed, int(changed.sum()), _sort_by_rows(columns))


def _difference_mask(before: pa.ChunkedArray, after: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if before.type != after.type:
        return np.ones(len(before), dtype=bool)
    try:
        other = pc.fill_null(pc.not_equal(before, after), False)
    except pa.ArrowNotImplementedError:  # a type that is never declared
        return np.ones(len(before), dtype=bool)
    if pa.types.is_floating(before.type):
        neither = pc.and_(pc.fill_null(pc.is_nan(before), False), pc.fill_null(pc.is_nan(after), False))
        other = pc.and_not(other, neither)
    only_one = pc.xor(before.is_null(), after.is_null())
    return np.asarray(pc.or_(other, only_one).to_numpy(), dtype=bool)


def _unmatched_changes(before: pa.Table, after: pa.Table) -> RowChanges:
    """Compares whole rows first, because a column alone hides swapped values; then column by column."""
    # Without the row number, which an additional row changes for all rows below it.
    names = [name for name in before.column_names if name != RECORD]
    changed = _count_unmatched_rows(before.select(names), after.select(names))
    columns = [
        ChangedColumn(format_name(name), _count_unmatched_rows(before.select([name]), after.select([name])))
        for name in names
    ]
    more, fewer = max(after.num_rows - before.num_rows, 0), max(before.num_rows - after.num_rows, 0)
    most = max((one.rows for one in columns), default=0)
    changed = max(changed, most) - max(more, fewer)
    return RowChanges(before.num_rows + more, more, fewer, max(changed, 0), _sort_by_rows(columns), matched=False)


def _count_unmatched_rows(before: pa.Table, after: pa.Table) -> int:
    """Counts the rows without a counterpart, on the side that has more of them."""
    if not before.num_columns:
        return int(abs(before.num_rows - after.num_rows))
    if before.schema.types != after.schema.types:
        return int(max(before.num_rows, after.num_rows))
    names = [str(number) for number in range(before.num_columns)]
    sides = [
        pa.table([*table.columns, np.full(table.num_rows, side)], names=[*names, "side"])
        for table, side in ((before, 1), (after, -1))
    ]
    try:
        left = pa.concat_tables(sides).group_by(names).aggregate([("side", "sum")])["side_sum"]
    except pa.ArrowNotImplementedError:  # a type that is never declared
        return int(max(before.num_rows, after.num_rows))
    gone = pc.sum(pc.max_element_wise(left, 0)).as_py() or 0
    new = -(pc.sum(pc.min_element_wise(left, 0)).as_py() or 0)
    return int(max(gone, new))


def _sort_by_rows(columns: Sequence[ChangedColumn]) -> tuple[ChangedColumn, ...]:
    return tuple(sorted((one for one in columns if one.rows), key=lambda one: (-one.rows, one.column)))
