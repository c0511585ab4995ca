"""Finds the declared type of each column of an Arrow table, with its name, nulls and bounds."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.tables import arrow_type
from kfm_pipelines.declarations.words import ColumnType, LocationRole
from kfm_pipelines.operations.datasets.check.units import unit_problem
from kfm_pipelines.operations.datasets.new.inspection import FoundColumn

if TYPE_CHECKING:
    import pyarrow as pa

LONGITUDES = frozenset({"lon", "long", "lng", "longitude", "x", "dec_long_va", "decimal_longitude", "decimallongitude"})
LATITUDES = frozenset({"lat", "latitude", "y", "dec_lat_va", "decimal_latitude", "decimallatitude"})
GEOMETRIES = frozenset({"geometry", "geom", "wkb", "wkb_geometry", "the_geom", "shape"})
# Words in names of columns that reveal a place in another way.
_PLACES = frozenset(
    [
        "address",
        "easting",
        "northing",
        "utm",
        "mgrs",
        "geohash",
        "h3",
        "hexagon",
        "grid",
        "directions",
        "location",
        "place",
        "plss",
        "township",
        "section",
        "street",
        "parcel",
        "footprint",
        "bbox",
        "coordinates",
        "coord",
        "coords",
    ]
)
_TEXT_TYPES: tuple[ColumnType, ...] = ("int64", "float64", "timestamp", "date", "bool")


def column_name(given: str) -> str:
    """Returns a name that can be declared: lower case, words joined by underscores."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", given.replace("^", ""))
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "column"
    return name if name[0].isalpha() else f"c_{name}"


def is_place(name: str) -> bool:
    return bool(_PLACES & set(name.split("_"))) or name in LONGITUDES | LATITUDES | GEOMETRIES


def find_columns(table: "pa.Table", geometry: str | None) -> Iterator[tuple[FoundColumn | None, str, bool]]:
    """Yields each column with its name in the object and whether its times lack an offset; None instead of a column
    that has no declared type."""
    taken: set[str] = set()
    for field in table.schema:
        values = table.column(field.name)
        kind, naive = ("geometry", False) if field.name == geometry else _type_of(values)
        if kind is None:
            yield None, field.name, False
            continue
        name = _unique(column_name(field.name), taken)
        share = values.null_count / len(values) if len(values) else 0.0
        yield (
            FoundColumn(
                name=name,
                type=kind,
                nullable=values.null_count > 0 or _has_blanks(values, kind),
                source=None if name == field.name else field.name,
                unit=_unit_of(field, name),
                holds=_role(name, kind),
                null_share=share,
                bounds=None if is_place(name) else _bounds(values, kind),
            ),
            field.name,
            naive,
        )


def _unique(name: str, taken: set[str]) -> str:
    number, wanted = 2, name
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def _role(name: str, kind: ColumnType) -> LocationRole | None:
    is_other_place = is_place(name) and name not in LONGITUDES | LATITUDES and kind != "geometry"
    return "place" if is_other_place else None


def _type_of(values: "pa.ChunkedArray") -> tuple[ColumnType | None, bool]:
    import pyarrow as pa

    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    tests: tuple[tuple[ColumnType, bool], ...] = (
        ("int64", pa.types.is_integer(kind)),
        ("float64", pa.types.is_floating(kind) or pa.types.is_decimal(kind)),
        ("bool", pa.types.is_boolean(kind)),
        ("timestamp", pa.types.is_timestamp(kind)),
        ("date", pa.types.is_date(kind)),
        ("string", pa.types.is_null(kind)),
    )
    found = next((name for name, holds in tests if holds), None)
    if found is not None:
        return found, False
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _type_of_text(values.cast(pa.string()))
    return None, False


def _type_of_text(texts: "pa.ChunkedArray") -> tuple[ColumnType, bool]:
    """Returns the type that all texts can be parsed into, as a reader would, and whether they are times without an
    offset. Numbers with leading zeros are names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(texts)
    values = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed).drop_null()
    if not len(values) or pc.any(pc.match_substring_regex(values, r"^-?0[0-9]")).as_py():
        return "string", False
    for kind in _TEXT_TYPES:
        if kind == "timestamp" and pc.all(pc.less_equal(pc.utf8_length(values), 10)).as_py():
            continue  # a date
        for target in (arrow_type(kind), *((pa.timestamp("us"),) if kind == "timestamp" else ())):
            try:
                values.cast(target)
            except pa.ArrowException:
                continue
            return kind, target == pa.timestamp("us")
    return "string", False


def _has_blanks(values: "pa.ChunkedArray", kind: ColumnType) -> bool:
    """Whether text would be parsed into nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "string" or not pa.types.is_string(values.type):
        return False
    return bool(pc.any(pc.equal(pc.utf8_trim_whitespace(values), "")).as_py())


def _bounds(values: "pa.ChunkedArray", kind: ColumnType) -> tuple[float, float] | None:
    numbers = _as_numbers(values, kind)
    if numbers is None:
        return None
    import pyarrow.compute as pc

    finite = numbers.filter(pc.is_finite(numbers))
    found = pc.min_max(finite).as_py()
    return None if found["min"] is None else (float(found["min"]), float(found["max"]))


def _as_numbers(values: "pa.ChunkedArray", kind: ColumnType) -> "pa.ChunkedArray | None":
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind not in ("int64", "float64"):
        return None
    if pa.types.is_string(values.type):
        trimmed = pc.utf8_trim_whitespace(values)
        values = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    return values.cast(pa.float64(), safe=False)


def _unit_of(field: "pa.Field", name: str) -> str | None:
    metadata = {key.lower(): value for key, value in (field.metadata or {}).items()}
    stated = metadata.get(b"unit") or metadata.get(b"units")
    if stated and unit_problem(text := str(stated.decode("utf-8", "replace")).strip()) is None:
        return text
    if name in LONGITUDES | LATITUDES:
        return "deg"
    named = re.search(r"[(\[]([^()\[\]]+)[)\]]\s*$", field.name)
    if named and unit_problem(named[1]) is None:
        return named[1]
    return _UNIT_SUFFIXES.get(name.rpartition("_")[2]) if "_" in name else None


_UNIT_SUFFIXES = {
    "cfs": "ft3/s", "cms": "m3/s", "ft": "ft", "m": "m", "km": "km", "mm": "mm", "cm": "cm", "m2": "m2", "km2": "km2",
    "acres": "acre", "percent": "%", "pct": "%", "degc": "degC", "degf": "degF", "hpa": "hPa", "kt": "knot",
}  # fmt: skip
