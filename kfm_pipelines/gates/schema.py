"""The schema gate: columns, types, nulls, identity of rows, time and place as the dataset declares them."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Table
from kfm_pipelines.gates.verdict import Finding, Severity, Verdict

if TYPE_CHECKING:
    import pyarrow as pa


def judge_schema(
    declaration: Table, table: "pa.Table", declared: "pa.Schema", window: tuple[datetime, datetime]
) -> Verdict:
    """`window` is half-open: a reading at its end belongs to the next one."""
    columns = list(_columns(table, declared))
    values = (
        []
        if columns
        else [
            *_nulls(table, declared),
            *_rows(declaration, table),
            *_time(declaration, table, window),
            *_place(declaration, table),
        ]
    )
    return Verdict("schema", (*columns, *values))


def _columns(table: "pa.Table", declared: "pa.Schema") -> Iterator[Finding]:
    for field in declared:
        if field.name not in table.column_names:
            yield _error("column-present", field.name, f"a column of type {field.type}", "no such column")
        elif table.schema.field(field.name).type != field.type:
            yield _error("column-type", field.name, str(field.type), str(table.schema.field(field.name).type))
    for name in table.column_names:
        if name not in declared.names:
            yield _error("column-declared", name[:80], "only declared columns", "an undeclared column")


def _nulls(table: "pa.Table", declared: "pa.Schema") -> Iterator[Finding]:
    for field in declared:
        nulls = table.column(field.name).null_count
        if nulls and not field.nullable:
            yield _error("no-nulls", field.name, "no nulls", f"{nulls} of {table.num_rows} rows")


def _rows(declaration: Table, table: "pa.Table") -> Iterator[Finding]:
    if table.num_rows == 0:
        yield Finding("not-empty", Severity.WARN, "table", "at least one row", "none")
        return
    names = declaration.primary_key
    distinct = table.select(names).group_by(names).aggregate([]).num_rows
    if distinct != table.num_rows:
        subject = ", ".join(names)
        yield _error("primary-key-unique", subject, "one row each", f"{table.num_rows - distinct} rows too many")


def _time(declaration: Table, table: "pa.Table", window: tuple[datetime, datetime]) -> Iterator[Finding]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if declaration.time_column is None:
        return
    instant = pa.timestamp("us", tz="UTC")
    times = table.column(declaration.time_column)
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("us")).cast(instant)  # a day is its first instant
    start, end = (pa.scalar(moment, instant) for moment in window)
    outside = _count(pc.or_(pc.less(times, start), pc.greater_equal(times, end)))
    if outside:
        expected = f"times from {window[0]:%Y-%m-%dT%H:%MZ} until before {window[1]:%Y-%m-%dT%H:%MZ}"
        yield _error("time-in-window", declaration.time_column, expected, f"{outside} rows outside")


def _place(declaration: Table, table: "pa.Table") -> Iterator[Finding]:
    if declaration.longitude_column is None or declaration.latitude_column is None:
        return
    longitudes, latitudes = table.column(declaration.longitude_column), table.column(declaration.latitude_column)
    swapped = _beyond(latitudes, 90.0) and not _beyond(latitudes, 180.0) and not _beyond(longitudes, 90.0)
    hint = "; longitude and latitude look swapped" if swapped else ""
    for name, degrees, limit in (
        (declaration.longitude_column, longitudes, 180.0),
        (declaration.latitude_column, latitudes, 90.0),
    ):
        if wrong := _beyond(degrees, limit):
            expected = f"degrees from -{limit:g} to {limit:g}"
            yield _error("degrees-in-range", name, expected, f"{wrong} rows outside{hint}")


def _beyond(degrees: "pa.ChunkedArray", limit: float) -> int:
    """How many are no degrees up to the limit; one that is not there is none of them."""
    import pyarrow.compute as pc

    return int(len(degrees) - degrees.null_count) - _count(pc.less_equal(pc.abs(degrees), limit))


def _count(condition: "pa.ChunkedArray") -> int:
    import pyarrow.compute as pc

    return int(pc.sum(condition).as_py() or 0)


def _error(rule: str, subject: str, expected: str, measured: str) -> Finding:
    return Finding(rule, Severity.ERROR, subject, expected, measured)
