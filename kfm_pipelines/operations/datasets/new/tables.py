"""Finds out what the columns of a table are for: which identify, date and locate a row."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, time
from itertools import combinations
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.identity import BBox
from kfm_pipelines.operations.datasets.new.inspection import FoundColumn, FoundTable
from kfm_pipelines.operations.datasets.new.types import GEOMETRIES, LATITUDES, LONGITUDES, find_columns

if TYPE_CHECKING:
    import pyarrow as pa

MAX_KEY_COLUMNS = 4
MAX_CANDIDATES = 10
SAMPLE_ROWS = 200_000
_ID_WORDS = frozenset(
    ["id", "no", "nr", "number", "code", "key", "uuid", "guid", "gnis", "fid", "site", "station", "name", "stid"]
)
_DERIVED = "geometry"


def describe_table(table: "pa.Table", geometry: str | None = None, timezone: str = "UTC") -> FoundTable:
    """`geometry` is the column that the format says is one."""
    found = list(find_columns(table, geometry or _wkb_column(table)))
    known = [(column, source, naive) for column, source, naive in found if column is not None]
    columns = [column for column, _, _ in known]
    sources = {column.name: source for column, source, _ in known}
    longitude, latitude = _coordinate(columns, LONGITUDES), _coordinate(columns, LATITUDES)
    if longitude is None or latitude is None:
        longitude = latitude = None
    shape = next((column.name for column in columns if column.type == "geometry"), None)
    has_naive_times = any(naive for _, _, naive in known)
    parsed = _parse(table, known, timezone)
    when = _time_column(columns)
    key = _primary_key(parsed, columns, when, {longitude, latitude, shape})
    unsure = [] if key else ["no combination of columns tells the rows apart; choose the primary_key yourself"]
    if has_naive_times:
        unsure.append(f"times have no offset; timezone: {timezone} is a guess")
    columns = [_as_coordinate(column, longitude, latitude) for column in columns]
    if longitude and latitude and shape is None and _DERIVED not in sources:
        nullable = any(column.nullable for column in columns if column.name in (longitude, latitude))
        columns.append(FoundColumn(_DERIVED, "geometry", nullable, derived=True))
        shape = _DERIVED
    return FoundTable(
        columns=tuple(columns),
        primary_key=key or (columns[0].name,),
        time_column=when,
        longitude_column=longitude,
        latitude_column=latitude,
        geometry_column=shape,
        extent=_extent(parsed, longitude, latitude, shape),
        times=_times(parsed, when),
        left_out=tuple(source for column, source, _ in found if column is None),
        timezone=timezone if has_naive_times else None,
        unsure=tuple(unsure),
    )


def _wkb_column(table: "pa.Table") -> str | None:
    import pyarrow as pa

    binary = [
        field.name for field in table.schema if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
    ]
    return next((name for name in binary if name.lower() in GEOMETRIES), None)


def _coordinate(columns: Sequence[FoundColumn], names: frozenset[str]) -> str | None:
    return next((one.name for one in columns if one.name in names and one.type in ("float64", "int64")), None)


def _as_coordinate(column: FoundColumn, longitude: str | None, latitude: str | None) -> FoundColumn:
    return replace(column, type="float64") if column.name in (longitude, latitude) else column


def _parse(table: "pa.Table", known: Sequence[tuple[FoundColumn, str, bool]], timezone: str) -> "pa.Table":
    """Returns the first rows, with declared names and text parsed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from kfm_pipelines.declarations.tables import arrow_type

    head = table.slice(0, SAMPLE_ROWS)
    arrays = {}
    for column, source, naive in known:
        values = head.column(source)
        if pa.types.is_string(values.type) and column.type != "string":
            trimmed = pc.utf8_trim_whitespace(values)
            values = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
            if naive:
                values = pc.assume_timezone(values.cast(pa.timestamp("us")), timezone, ambiguous="earliest")
            else:
                values = values.cast(arrow_type(column.type))
        arrays[column.name] = values
    return pa.table(arrays)


def _time_column(columns: Sequence[FoundColumn]) -> str | None:
    times = [one for one in columns if one.type in ("timestamp", "date")]
    times.sort(key=lambda one: (one.nullable, one.type != "timestamp"))
    return times[0].name if times else None


def _primary_key(
    table: "pa.Table", columns: Sequence[FoundColumn], when: str | None, places: set[str | None]
) -> tuple[str, ...]:
    """Returns the smallest combination of columns that tells all rows apart, those that look like ids and times first;
    nothing if there is none. Measurements may be unique by chance."""
    able = [one for one in columns if not one.nullable and one.name not in places and one.holds is None]
    able = [one for one in able if one.type not in ("geometry", "bool", "float64")]
    able.sort(key=lambda one: (_rank(one, when), columns.index(one)))
    names = [one.name for one in able[:MAX_CANDIDATES]]
    rows = table.num_rows
    for size in range(1, MAX_KEY_COLUMNS + 1):
        for chosen in combinations(names, size):
            if table.select(list(chosen)).group_by(list(chosen)).aggregate([]).num_rows == rows:
                return chosen
    return ()


def _rank(column: FoundColumn, when: str | None) -> int:
    if set(column.name.split("_")) & _ID_WORDS:
        return 0
    if column.name == when:
        return 1
    return 2 if column.type == "string" else 3


def _times(table: "pa.Table", when: str | None) -> tuple[datetime, datetime] | None:
    import pyarrow.compute as pc

    if when is None:
        return None
    found = pc.min_max(table.column(when)).as_py()
    if found["min"] is None:
        return None
    first, last = (_as_instant(found[end]) for end in ("min", "max"))
    return first, last


def _as_instant(value: object) -> datetime:
    if not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)  # type: ignore[arg-type]
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _extent(table: "pa.Table", longitude: str | None, latitude: str | None, shape: str | None) -> BBox | None:
    import pyarrow.compute as pc

    from kfm_pipelines.parquet.geoparquet import box_of

    if longitude and latitude:
        ends = [pc.min_max(table.column(name).cast("float64")).as_py() for name in (longitude, latitude)]
        if None in (ends[0]["min"], ends[1]["min"]):
            return None
        return (ends[0]["min"], ends[1]["min"], ends[0]["max"], ends[1]["max"])
    if shape is None or shape not in table.column_names:
        return None
    box = box_of(table.column(shape))
    return (box[0], box[1], box[2], box[3]) if box else None
