"""Compares releases and samples rows for the review page, from Arrow tables."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from kfm_pipelines.care.published_table import CELL, RECORD, RECORDS
from kfm_pipelines.care.review.page.content import CellChange, ReleaseDifference, ReleaseSample, SampleColumn

_SIDE = "kfm_side"  # +1 for a current row, -1 for a previous one
_COUNTED = "kfm_counted"


def compare_releases(previous: pa.Table | None, current: pa.Table) -> ReleaseDifference | None:
    """Compares by cell, over the shared columns. Row numbers are arbitrary and not compared."""
    if previous is None:
        return None
    before, after = _typed_columns(previous), _typed_columns(current)
    return ReleaseDifference(
        rows_before=previous.num_rows,
        rows_after=current.num_rows,
        records_before=_records(previous),
        records_after=_records(current),
        cells=_cell_changes(previous, current, [name for name, kind in after.items() if before.get(name) == kind]),
        columns_added=tuple(name for name, kind in after.items() if before.get(name) != kind),
        columns_removed=tuple(name for name, kind in before.items() if after.get(name) != kind),
    )


def _typed_columns(table: pa.Table) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in table.schema if field.name != RECORD}


def _records(table: pa.Table) -> int:
    return int(pc.sum(table[RECORDS]).as_py() or 0) if RECORDS in table.column_names else int(table.num_rows)


def _cell_changes(previous: pa.Table, current: pa.Table, shared: Sequence[str]) -> tuple[CellChange, ...]:
    sided = pa.concat_tables([_with_side(previous, shared, -1), _with_side(current, shared, 1)])
    counted = sided.group_by([*shared, _COUNTED]).aggregate([(_SIDE, "sum")])
    differing = counted.filter(pc.not_equal(counted[f"{_SIDE}_sum"], 0))
    per_cell: dict[str | None, list[int]] = {}
    cells = differing[CELL].to_pylist() if CELL in shared else [None] * differing.num_rows
    for cell, side in zip(cells, differing[f"{_SIDE}_sum"].to_pylist(), strict=True):
        counts = per_cell.setdefault(cell, [0, 0])
        counts[0] += max(side, 0)
        counts[1] += max(-side, 0)
    before, after = _records_per_cell(previous), _records_per_cell(current)
    changes = []
    for cell, (added, removed) in per_cell.items():
        changed, records = min(added, removed), (before.get(cell, 0), after.get(cell, 0))
        changes.append(CellChange(cell, added - changed, removed - changed, changed, *records))
    return tuple(sorted(changes, key=lambda change: (-change.size, change.cell is None, change.cell or "")))


def _with_side(table: pa.Table, shared: Sequence[str], side: int) -> pa.Table:
    # A new table, because different nullability and metadata cannot be concatenated.
    marks = {_COUNTED: np.ones(table.num_rows, np.int64), _SIDE: np.full(table.num_rows, side)}
    return pa.table({name: table[name] for name in shared} | marks)


def _records_per_cell(table: pa.Table) -> dict[str | None, int]:
    if CELL not in table.column_names:
        return {None: _records(table)}
    counted = table.group_by(CELL).aggregate([(RECORDS, "sum")])
    return dict(zip(counted[CELL].to_pylist(), counted[f"{RECORDS}_sum"].to_pylist(), strict=True))


def sample_rows(published: pa.Table, *, wording: str | None, rows: int = 20) -> ReleaseSample:
    repeating = tuple(name for name in published.column_names if _is_only_wording(published, name, wording))
    kept = published.drop_columns(list(repeating)) if repeating else published
    cells = [[_as_text(value) for value in column.to_pylist()] for column in kept.slice(0, rows).columns]
    numeric = (pa.types.is_integer, pa.types.is_floating)
    return ReleaseSample(
        columns=tuple(SampleColumn(one.name, any(is_kind(one.type) for is_kind in numeric)) for one in kept.schema),
        rows=tuple(zip(*cells, strict=True)),
        rows_in_all=published.num_rows,
        only_wording=repeating,
    )


def _is_only_wording(published: pa.Table, name: str, wording: str | None) -> bool:
    column = published[name]
    if wording is None or published.num_rows == 0 or not pa.types.is_string(column.type):
        return False
    return pc.all(pc.fill_null(pc.equal(column, wording), fill_value=False)).as_py() is True


def _as_text(value: object) -> str:
    match value:
        case None:
            return "–"
        case bytes():
            shape = shapely.from_wkb(value, on_invalid="ignore")
            return "not a geometry" if shape is None else str(shape.geom_type)
        case float():
            return f"{value:.5f}".rstrip("0").rstrip(".")
        case _:
            return str(value)
