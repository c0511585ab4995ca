"""Rules about places: inside the declared extent, with valid geometries."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.policies import RESERVED_COLUMNS
from kfm_pipelines.declarations import Extent
from kfm_pipelines.gates.verdict import Finding, Rule, Severity, TableSubject, count_true, error, format_sample

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

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


def _check_geometry(subject: TableSubject) -> Iterator[Finding]:
    import pyarrow as pa

    name = subject.published.geometry_column
    if name is None:
        return
    for expected, measured, wrong in _geometry_errors(subject, name):
        if count := int(wrong.sum()):
            found = f"{count} of {subject.table.num_rows} rows {measured}"
            yield error("geometry-valid", name, expected, found, format_sample(subject, pa.array(wrong)))


def _geometry_errors(subject: TableSubject, name: str) -> "Iterator[tuple[str, str, np.ndarray[Any, Any]]]":
    """Yields what is expected, how rows break it, and which rows do; no row is reported twice."""
    import numpy as np
    import shapely

    there = subject.table.column(name).is_valid().to_numpy()
    shapes = read_shapes(subject, name)
    read = ~shapely.is_missing(shapes)
    yield "geometries in WKB", "unreadable", there & ~read
    empty = shapely.is_empty(shapes)
    yield "a place each", "empty", read & empty
    astray = read & _is_out_of_range(shapes)
    yield "degrees within 180 east or west and 90 north or south", "beyond", astray
    with np.errstate(invalid="ignore"):
        valid = shapely.is_valid(shapes)
    yield "valid geometries", "invalid", read & ~astray & ~valid


def read_shapes(subject: TableSubject, name: str) -> "np.ndarray[Any, Any]":
    """Returns one geometry for each row; None where it is missing or unreadable."""
    import numpy as np
    import shapely

    wkb = subject.table.column(name).to_numpy()
    with np.errstate(invalid="ignore"):
        return shapely.from_wkb(wkb, on_invalid="ignore")  # type: ignore[no-any-return]


def _is_out_of_range(shapes: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Marks shapes with a coordinate that is NaN or not on the earth."""
    import numpy as np
    import shapely

    coordinates, owners = shapely.get_coordinates(shapes, return_index=True)
    with np.errstate(invalid="ignore"):
        good = (np.abs(coordinates[:, 0]) <= 180.0) & (np.abs(coordinates[:, 1]) <= 90.0)
    astray = np.zeros(len(shapes), dtype=bool)
    astray[owners[~good]] = True
    return astray


_REPAIR = "Repair the geometries at the source (shapely's make_valid shows how) and send the object again."
_CHECK_PLACES = "Check these places (a lost sign, another reference system); declare a larger extent if they are right."
GEOMETRY_VALID = Rule("geometry-valid", _check_geometry, _REPAIR)
IN_EXTENT = Rule("in-extent", _check_in_extent, _CHECK_PLACES)
