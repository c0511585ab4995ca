"""The schema gate: columns, types, units, nulls, time and place as the dataset declares them, and as was approved."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.arrow import declared_schema, unit_of
from kfm_pipelines.gates.reference_system import WGS84, spoken_systems
from kfm_pipelines.gates.samples import sample_of
from kfm_pipelines.gates.schema_diff import differences
from kfm_pipelines.gates.subject import TableSubject, count_true
from kfm_pipelines.gates.verdict import Finding, Rule, Verdict, error, judge
from kfm_pipelines.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa


def judge_schema(subject: TableSubject) -> Verdict:
    """What is in the columns is looked at only when they are there, and of the right type."""
    shape = judge("schema", SHAPE_RULES, subject)
    values = judge("schema", VALUE_RULES, subject) if shape.passed else Verdict("schema", ())
    return Verdict("schema", (*shape.findings, *values.findings), (*shape.rules, *values.rules))


def _present(subject: TableSubject) -> Iterator[Finding]:
    for field in declared_schema(subject.published):
        if field.name not in subject.table.column_names:
            yield error("column-present", field.name, f"a column of type {field.type}", "no such column")


def _types(subject: TableSubject) -> Iterator[Finding]:
    for field, found in _shared(subject):
        if found.type != field.type:
            yield error("column-type", field.name, str(field.type), one_line(str(found.type), 80))


def _declared(subject: TableSubject) -> Iterator[Finding]:
    known = {column.name for column in subject.published.columns}
    for name in subject.table.column_names:
        if name not in known:
            yield error("column-declared", one_line(name, 80), "only declared columns", "an undeclared column")


def _units(subject: TableSubject) -> Iterator[Finding]:
    for field, found in _shared(subject):
        declared, stated = unit_of(field), unit_of(found)
        if declared != stated and field.type == found.type:
            yield error("column-unit", field.name, declared or "no unit", one_line(stated or "no unit", 80))


def _approved(subject: TableSubject) -> Iterator[Finding]:
    if subject.approved is None:
        return
    changes = differences(subject.approved.columns, subject.approved.now)
    if changes:
        expected = f"schema version {subject.approved.version}, as approved"
        yield error("schema-approved", "columns", expected, "; ".join(changes)[:1000])


def _nullability(subject: TableSubject) -> Iterator[Finding]:
    for field, found in _shared(subject):
        if found.nullable != field.nullable and not subject.table.column(field.name).null_count:
            yield error("column-nullability", field.name, _may_be_null(field), _may_be_null(found))


def _nulls(subject: TableSubject) -> Iterator[Finding]:
    for field, _ in _shared(subject):
        column = subject.table.column(field.name)
        if column.null_count and not field.nullable:
            measured = f"{column.null_count} of {subject.table.num_rows} rows"
            yield error("no-nulls", field.name, "no nulls", measured, sample_of(subject, column.is_null()))


def _time(subject: TableSubject) -> Iterator[Finding]:
    import pyarrow as pa
    import pyarrow.compute as pc

    name = subject.published.time_column
    if name is None:
        return
    times = _instants(subject.table.column(name))
    start, end = (pa.scalar(moment, times.type) for moment in subject.window)
    outside = pc.or_(pc.less(times, start), pc.greater_equal(times, end))
    if count := count_true(outside):
        expected = f"times from {subject.window[0]:%Y-%m-%dT%H:%MZ} until before {subject.window[1]:%Y-%m-%dT%H:%MZ}"
        yield error("time-in-window", name, expected, f"{count} rows outside", sample_of(subject, outside, name))


def _time_order(subject: TableSubject) -> Iterator[Finding]:
    """Rows about the same thing follow each other in time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name, rows = subject.published.time_column, subject.table.num_rows
    if name is None or rows < 2:
        return
    times = _instants(subject.table.column(name)).combine_chunks()
    backwards = pc.less(times.slice(1), times.slice(0, rows - 1))
    if not count_true(backwards):
        return
    for other in (column for column in subject.published.primary_key if column != name):
        values = subject.table.column(other).combine_chunks()
        backwards = pc.and_(backwards, pc.equal(values.slice(1), values.slice(0, rows - 1)))
    if count := count_true(backwards):
        wrong = pa.concat_arrays([pa.array([False]), pc.fill_null(backwards, False)])
        sample = sample_of(subject, wrong, name)
        yield error("time-order", name, "times that only grow", f"{count} rows go back", sample)


def _degrees(subject: TableSubject) -> Iterator[Finding]:
    declared = subject.published
    if declared.longitude_column is None or declared.latitude_column is None:
        return
    longitudes, latitudes = (subject.table.column(n) for n in (declared.longitude_column, declared.latitude_column))
    swapped = _beyond(latitudes, 90.0) and not _beyond(latitudes, 180.0) and not _beyond(longitudes, 90.0)
    hint = "; longitude and latitude look swapped" if swapped else ""
    for name, degrees, limit in (
        (declared.longitude_column, longitudes, 180.0),
        (declared.latitude_column, latitudes, 90.0),
    ):
        if wrong := _beyond(degrees, limit):
            yield error(
                "degrees-in-range", name, f"degrees from -{limit:g} to {limit:g}", f"{wrong} rows outside{hint}"
            )


def _reference_system(subject: TableSubject) -> Iterator[Finding]:
    try:
        systems = spoken_systems(subject.data)
    except (ValueError, RecursionError):
        yield error("reference-system", "file", "WGS 84", "metadata about coordinates that cannot be read")
        return
    for system in sorted({one or "an unnamed system" for one in systems if one not in WGS84}):
        yield error("reference-system", "file", "WGS 84", system)


def _shared(subject: TableSubject) -> "Iterator[tuple[pa.Field, pa.Field]]":
    """Each declared column that is there, and how it was found."""
    for field in declared_schema(subject.published):
        if field.name in subject.table.column_names:
            yield field, subject.table.schema.field(field.name)


def _may_be_null(field: "pa.Field") -> str:
    return "may be null" if field.nullable else "never null"


def _instants(times: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """A day is its first instant."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    return times.cast(pa.timestamp("us")).cast(instant) if pa.types.is_date(times.type) else times


def _beyond(degrees: "pa.ChunkedArray", limit: float) -> int:
    """How many are no degrees up to the limit; one that is not there is none of them."""
    import pyarrow.compute as pc

    return int(len(degrees) - degrees.null_count) - count_true(pc.less_equal(pc.abs(degrees), limit))


_APPROVE = "declare what the data has now, record why with `kfm datasets approve-schema DATASET`, and redrive."
_TAKE_BACK = "Take the change back, or record why it is right with `kfm datasets approve-schema DATASET`."
_WGS84 = "Have the coordinates written in WGS 84 and the object uploaded again."
SHAPE_RULES: tuple[Rule[TableSubject], ...] = (
    Rule("column-present", _present, f"Ask the producer for the column; or {_APPROVE}"),
    Rule("column-type", _types, f"Ask the producer for the declared type; or {_APPROVE}"),
    Rule("column-declared", _declared, f"Ask the producer to leave the column out; or {_APPROVE}"),
    Rule("column-unit", _units, f"Ask the producer for the declared unit; or {_APPROVE}"),
    Rule("schema-approved", _approved, _TAKE_BACK),
)
VALUE_RULES: tuple[Rule[TableSubject], ...] = (
    Rule("column-nullability", _nullability, f"Have the column written as declared; or {_APPROVE}"),
    Rule("no-nulls", _nulls, f"Have the missing values supplied; or {_APPROVE}"),
    Rule("time-in-window", _time, "Have the rows put into the object of their own window, and upload both again."),
    Rule("time-order", _time_order, "The transform wrote rows out of order: mend it and redrive."),
    Rule("degrees-in-range", _degrees, "Have the coordinates put right and the object uploaded again."),
    Rule("reference-system", _reference_system, _WGS84),
)
SCHEMA_RULES = SHAPE_RULES + VALUE_RULES
