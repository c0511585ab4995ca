"""Rules about places: inside the declared extent and area, with valid geometries."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.policies import RESERVED_COLUMNS
from kfm_pipelines.declarations import Extent
from kfm_pipelines.gates.verdict import (
    OUTSIDE_AREA,
    Finding,
    Rule,
    Severity,
    TableSubject,
    count_true,
    error,
    format_sample,
)
from kfm_pipelines.parquet.geoparquet import coordinates_of
from kfm_pipelines.parquet.outside import rows_outside

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Flags = np.ndarray[Any, Any]

METRES_PER_DEGREE = 110_500.0  # of latitude, where it is shortest
_, _, UNCERTAINTY, _ = RESERVED_COLUMNS


def _check_in_extent(subject: TableSubject) -> Iterator[Finding]:
    table, extent = subject.published, subject.dataset.extent
    if extent is None or table.longitude_column is None or table.latitude_column is None:
        return
    outside = _outside_extent(subject, table.longitude_column, table.latitude_column, extent)
    if count := count_true(outside):
        expected = f"longitudes {extent.west:g} to {extent.east:g} and latitudes {extent.south:g} to {extent.north:g}"
        measured = f"{count} of {subject.table.num_rows} rows outside"
        named = f"{table.longitude_column}, {table.latitude_column}"
        yield Finding("in-extent", Severity.WARN, named, expected, measured, format_sample(subject, outside))


def _outside_extent(subject: TableSubject, longitude: str, latitude: str, extent: Extent) -> "pa.ChunkedArray":
    """Marks places outside the extent by more than their uncertainty."""
    import pyarrow.compute as pc

    longitudes, latitudes = subject.table.column(longitude), subject.table.column(latitude)
    north_south = _tolerance_degrees(subject)
    # A metre is more degrees of longitude the farther it is from the equator.
    narrowest = math.cos(math.radians(min(89.0, max(abs(extent.south), abs(extent.north)))))
    east_west = pc.divide(north_south, narrowest)
    return pc.invert(
        pc.and_(
            _within(longitudes, extent.west, extent.east, east_west),
            _within(latitudes, extent.south, extent.north, north_south),
        )
    )


def _within(
    degrees: "pa.ChunkedArray", least: float, most: float, slack: "pa.ChunkedArray | pa.Scalar"
) -> "pa.ChunkedArray":
    import pyarrow.compute as pc

    return pc.and_(pc.greater_equal(pc.add(degrees, slack), least), pc.less_equal(pc.subtract(degrees, slack), most))


def _tolerance_degrees(subject: TableSubject) -> "pa.ChunkedArray | pa.Scalar":
    """Returns the published uncertainty in degrees of latitude; none for data that is not masked."""
    import pyarrow as pa
    import pyarrow.compute as pc

    masked = subject.published != subject.dataset.table and UNCERTAINTY in subject.table.column_names
    if not masked:
        return pa.scalar(0.0)
    return pc.divide(pc.fill_null(subject.table.column(UNCERTAINTY), 0.0), METRES_PER_DEGREE)


def _check_outside_area(subject: TableSubject) -> Iterator[Finding]:
    """An error unless the dataset declares that it only warns. What was clipped is worth knowing."""
    yield from subject.found_before_masking
    if clipped := subject.left_out.get(OUTSIDE_AREA):
        expected = f"places in {subject.dataset.key.aoi}"
        yield Finding("outside-aoi", Severity.INFO, "table", expected, f"{clipped} outside, left out")
    if subject.area is None or not subject.dataset.has_judged_places:
        return
    outside = rows_outside(subject.table, subject.dataset.table, subject.area)
    if outside is not None and (count := int(outside.sum())):
        import pyarrow as pa

        severity = Severity.WARN if subject.dataset.outside_aoi == "warn" else Severity.ERROR
        named = ", ".join(subject.dataset.table.position_columns)
        measured = f"{count} of {subject.table.num_rows} rows outside"
        sample = format_sample(subject, pa.array(outside))
        yield Finding("outside-aoi", severity, named, f"places in {subject.area.name}", measured, sample)


def _check_geometry(subject: TableSubject) -> Iterator[Finding]:
    import numpy as np
    import pyarrow as pa

    name = subject.published.geometry_column
    if name is None:
        return
    faults, rows = _judge_geometries(subject.table.column(name))
    for (expected, measured), faulty in zip(_FAULTS, faults, strict=True):
        if faulty.any():
            wrong = np.append(faulty, False)[rows]
            found = f"{int(wrong.sum())} of {subject.table.num_rows} rows {measured}"
            yield error("geometry-valid", name, expected, found, format_sample(subject, pa.array(wrong)))


def _judge_geometries(column: "pa.ChunkedArray") -> "tuple[Iterator[Flags], Flags]":
    """Returns for each fault which geometries have it, and which of them each row has; -1 for null."""
    import numpy as np

    from kfm_pipelines.parquet.distinct_values import encode_column
    from kfm_pipelines.parquet.parquet import flatten

    points = coordinates_of(flatten(column).drop_null())
    if points is None:
        encoded = encode_column(column)
        return _shape_faults(encoded.distinct), encoded.codes
    there = column.is_valid().to_numpy()
    return _point_faults(points), np.where(there, np.cumsum(there) - 1, -1)


def _point_faults(points: "np.ndarray[Any, Any]") -> "Iterator[Flags]":
    """Yields the same as for shapes: a point without coordinates is empty, and one on the earth is always valid."""
    import numpy as np

    empty, nothing = np.isnan(points[:, 0]) & np.isnan(points[:, 1]), np.zeros(len(points), np.bool_)
    yield from (nothing, empty, ~empty & ~_is_on_earth(points), nothing)


def _shape_faults(values: "pa.Array") -> "Iterator[Flags]":
    """Yields for each fault which of these distinct geometries have it; none has two."""
    import numpy as np
    import shapely

    with np.errstate(invalid="ignore"):
        shapes = shapely.from_wkb(values.to_numpy(zero_copy_only=False), on_invalid="ignore")
    read = ~shapely.is_missing(shapes)
    yield ~read
    yield read & shapely.is_empty(shapes)
    coordinates, owners = shapely.get_coordinates(shapes, return_index=True)
    astray = np.zeros(len(shapes), np.bool_)
    astray[owners[~_is_on_earth(coordinates)]] = True
    yield astray
    with np.errstate(invalid="ignore"):
        yield read & ~astray & ~shapely.is_valid(shapes)


def _is_on_earth(coordinates: "np.ndarray[Any, Any]") -> "Flags":
    """NaN is not."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        on_earth: Flags = (np.abs(coordinates[:, 0]) <= 180.0) & (np.abs(coordinates[:, 1]) <= 90.0)
    return on_earth


_FAULTS = (
    ("geometries in WKB", "unreadable"),
    ("a place each", "empty"),
    ("degrees within 180 east or west and 90 north or south", "beyond"),
    ("valid geometries", "invalid"),
)
_REPAIR = "Repair the geometries at the source (shapely's make_valid shows how) and send the object again."
_CHECK_PLACES = "Check these places (a lost sign, another reference system); declare a larger extent if they are right."
_OUTSIDE = (
    "Check these places, and that the object belongs to this dataset; if they are right, declare another `aoi`, or "
    "`outside_aoi: clip` or `warn`."
)
GEOMETRY_VALID = Rule("geometry-valid", _check_geometry, _REPAIR)
IN_EXTENT = Rule("in-extent", _check_in_extent, _CHECK_PLACES)
OUTSIDE_AOI = Rule("outside-aoi", _check_outside_area, _OUTSIDE)
