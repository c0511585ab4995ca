"""The schema gate: checks columns, types, units, nulls, times and places against declaration and approved schema."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import rfc8785

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.tables import declared_schema, unit_of
from kfm_pipelines.gates.quality.rasters import RASTER_AS_DECLARED
from kfm_pipelines.gates.verdict import (
    OUTSIDE_WINDOW,
    Finding,
    Rule,
    Severity,
    TableSubject,
    Verdict,
    count_true,
    error,
    format_sample,
    judge,
)
from kfm_pipelines.parquet.geoparquet import WGS84, read_reference_systems
from kfm_pipelines.parquet.outside import times_outside, to_instants
from kfm_pipelines.text import truncate_line

if TYPE_CHECKING:
    import pyarrow as pa

SchemaColumns = Mapping[str, Mapping[str, Any]]


def columns_of(table: Table) -> dict[str, dict[str, Any]]:
    return {
        column.name: {"type": column.type, "nullable": column.nullable, "unit": column.unit} for column in table.columns
    }


def schema_digest(columns: SchemaColumns) -> str:
    """Hashes a schema regardless of the order of its columns."""
    return hashlib.sha256(rfc8785.dumps({name: dict(facts) for name, facts in columns.items()})).hexdigest()


def diff_schemas(before: SchemaColumns, after: SchemaColumns) -> list[str]:
    """Returns one phrase for each change, ordered by column name."""
    changes = []
    for name in sorted({*before, *after}):
        if name not in after:
            changes.append(f"{name} removed")
        elif name not in before:
            changes.append(f"{name} added ({_format_column(after[name])})")
        else:
            for fact in ("type", "nullable", "unit"):
                was, now = before[name].get(fact), after[name].get(fact)
                if was != now:
                    changes.append(f"{name}: {fact} {_format_fact(was)} is now {_format_fact(now)}")
    return changes


def _format_column(column: Mapping[str, Any]) -> str:
    unit = f" in {column['unit']}" if column.get("unit") else ""
    return f"{column['type']}{unit}{', may be null' if column.get('nullable') else ''}"


def _format_fact(fact: object) -> str:
    return "none" if fact is None else {True: "yes", False: "no"}[fact] if isinstance(fact, bool) else str(fact)


def judge_schema(subject: TableSubject) -> Verdict:
    """Checks values only when every column is present and of the declared type."""
    shape = judge("schema", SHAPE_RULES, subject)
    values = judge("schema", VALUE_RULES, subject) if shape.passed else Verdict("schema", ())
    return Verdict("schema", (*shape.findings, *values.findings), (*shape.rules, *values.rules))


def _check_columns_present(subject: TableSubject) -> Iterator[Finding]:
    for field in declared_schema(subject.published):
        if field.name not in subject.table.column_names:
            yield error("column-present", field.name, f"a column of type {field.type}", "no such column")


def _check_column_types(subject: TableSubject) -> Iterator[Finding]:
    for field, found in _present_columns(subject):
        if found.type != field.type:
            yield error("column-type", field.name, str(field.type), truncate_line(str(found.type), 80))


def _check_columns_declared(subject: TableSubject) -> Iterator[Finding]:
    known = {column.name for column in subject.published.columns}
    for name in subject.table.column_names:
        if name not in known:
            yield error("column-declared", truncate_line(name, 80), "only declared columns", "an undeclared column")


def _check_units(subject: TableSubject) -> Iterator[Finding]:
    for field, found in _present_columns(subject):
        declared, stated = unit_of(field), unit_of(found)
        if declared != stated and field.type == found.type:
            yield error("column-unit", field.name, declared or "no unit", truncate_line(stated or "no unit", 80))


def _check_schema_approved(subject: TableSubject) -> Iterator[Finding]:
    if subject.approved is None:
        return
    changes = diff_schemas(subject.approved.columns, subject.approved.now)
    if changes:
        expected = f"schema version {subject.approved.version}, as approved"
        yield error("schema-approved", "columns", expected, "; ".join(changes)[:1000])


def _check_nullability(subject: TableSubject) -> Iterator[Finding]:
    for field, found in _present_columns(subject):
        if found.nullable != field.nullable and not subject.table.column(field.name).null_count:
            yield error("column-nullability", field.name, _format_nullability(field), _format_nullability(found))


def _check_nulls(subject: TableSubject) -> Iterator[Finding]:
    for field, _ in _present_columns(subject):
        column = subject.table.column(field.name)
        if column.null_count and not field.nullable:
            measured = f"{column.null_count} of {subject.table.num_rows} rows"
            yield error("no-nulls", field.name, "no nulls", measured, format_sample(subject, column.is_null()))


def _check_time_in_window(subject: TableSubject) -> Iterator[Finding]:
    """An error. What was left out, because the dataset declares it, is worth knowing."""
    expected = f"times from {subject.window[0]:%Y-%m-%dT%H:%MZ} until before {subject.window[1]:%Y-%m-%dT%H:%MZ}"
    if clipped := subject.left_out.get(OUTSIDE_WINDOW):
        yield Finding("time-in-window", Severity.INFO, "table", expected, f"{clipped} outside, left out")
    name = subject.published.time_column
    if name is None:
        return
    outside = times_outside(subject.table.column(name), subject.window)
    if count := count_true(outside):
        yield error("time-in-window", name, expected, f"{count} rows outside", format_sample(subject, outside, name))


def _check_time_order(subject: TableSubject) -> Iterator[Finding]:
    """Rows that share the rest of their primary key must be in order of time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name, rows = subject.published.time_column, subject.table.num_rows
    if name is None or rows < 2:
        return
    times = to_instants(subject.table.column(name)).combine_chunks()
    backwards = pc.less(times.slice(1), times.slice(0, rows - 1))
    if not count_true(backwards):
        return
    for other in (column for column in subject.published.primary_key if column != name):
        values = subject.table.column(other).combine_chunks()
        backwards = pc.and_(backwards, pc.equal(values.slice(1), values.slice(0, rows - 1)))
    if count := count_true(backwards):
        wrong = pa.concat_arrays([pa.array([False]), pc.fill_null(backwards, False)])
        sample = format_sample(subject, wrong, name)
        yield error("time-order", name, "times that only grow", f"{count} rows go back", sample)


def _check_degrees(subject: TableSubject) -> Iterator[Finding]:
    declared = subject.published
    if declared.longitude_column is None or declared.latitude_column is None:
        return
    longitudes, latitudes = (subject.table.column(n) for n in (declared.longitude_column, declared.latitude_column))
    swapped = (
        _count_out_of_range(latitudes, 90.0)
        and not _count_out_of_range(latitudes, 180.0)
        and not _count_out_of_range(longitudes, 90.0)
    )
    hint = "; longitude and latitude look swapped" if swapped else ""
    checks = ((declared.longitude_column, longitudes, 180.0), (declared.latitude_column, latitudes, 90.0))
    for name, degrees, limit in checks:
        if wrong := _count_out_of_range(degrees, limit):
            expected = f"degrees from -{limit:g} to {limit:g}"
            yield error("degrees-in-range", name, expected, f"{wrong} rows outside{hint}")


def _check_reference_system(subject: TableSubject) -> Iterator[Finding]:
    try:
        systems = read_reference_systems(subject.data)
    except (ValueError, RecursionError):
        yield error("reference-system", "file", "WGS 84", "metadata about coordinates that cannot be read")
        return
    for system in sorted({one or "an unnamed system" for one in systems if one not in WGS84}):
        yield error("reference-system", "file", "WGS 84", system)


def _present_columns(subject: TableSubject) -> "Iterator[tuple[pa.Field, pa.Field]]":
    for field in declared_schema(subject.published):
        if field.name in subject.table.column_names:
            yield field, subject.table.schema.field(field.name)


def _format_nullability(field: "pa.Field") -> str:
    return "may be null" if field.nullable else "never null"


def _count_out_of_range(degrees: "pa.ChunkedArray", limit: float) -> int:
    """Counts values beyond the limit, NaN included and nulls not."""
    import pyarrow.compute as pc

    return int(len(degrees) - degrees.null_count) - count_true(pc.less_equal(pc.abs(degrees), limit))


_APPROVE = "declare what the data has now, record why with `kfm datasets approve-schema DATASET`, and redrive."
_REVERT = "Revert the change, or record why it is right with `kfm datasets approve-schema DATASET`."
_MOVE_ROWS = (
    "Have the rows put into the object of their own window, and upload both again; or declare `table.outside_window: "
    "clip` if the objects of those windows have them too."
)
_WGS84 = "Have the coordinates written in WGS 84 and the object uploaded again."
SHAPE_RULES: tuple[Rule[TableSubject], ...] = (
    Rule("column-present", _check_columns_present, f"Ask the producer for the column; or {_APPROVE}"),
    Rule("column-type", _check_column_types, f"Ask the producer for the declared type; or {_APPROVE}"),
    Rule("column-declared", _check_columns_declared, f"Ask the producer to leave the column out; or {_APPROVE}"),
    Rule("column-unit", _check_units, f"Ask the producer for the declared unit; or {_APPROVE}"),
    Rule("schema-approved", _check_schema_approved, _REVERT),
)
VALUE_RULES: tuple[Rule[TableSubject], ...] = (
    Rule("column-nullability", _check_nullability, f"Have the column written as declared; or {_APPROVE}"),
    Rule("no-nulls", _check_nulls, f"Have the missing values supplied; or {_APPROVE}"),
    Rule("time-in-window", _check_time_in_window, _MOVE_ROWS),
    Rule("time-order", _check_time_order, "The transform wrote rows out of order: fix it and redrive."),
    Rule("degrees-in-range", _check_degrees, "Have the coordinates put right and the object uploaded again."),
    Rule("reference-system", _check_reference_system, _WGS84),
    RASTER_AS_DECLARED,
)
SCHEMA_RULES = SHAPE_RULES + VALUE_RULES
