"""Whether the places lie where the dataset says its places lie."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.care.policies import RESERVED
from kfm_pipelines.declarations import Extent
from kfm_pipelines.gates.counting import count_true
from kfm_pipelines.gates.samples import sample_of
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity

if TYPE_CHECKING:
    import pyarrow as pa

METRES_A_DEGREE = 110_500.0  # of latitude, where it is shortest
_, _, UNCERTAINTY, _ = RESERVED


def _in_extent(subject: TableSubject) -> Iterator[Finding]:
    table, extent = subject.published, subject.dataset.extent
    if extent is None or table.longitude_column is None or table.latitude_column is None:
        return
    outside = _outside(subject, table.longitude_column, table.latitude_column, extent)
    if count := count_true(outside):
        expected = f"longitudes {extent.west:g} to {extent.east:g} and latitudes {extent.south:g} to {extent.north:g}"
        measured = f"{count} of {subject.table.num_rows} rows outside"
        named = f"{table.longitude_column}, {table.latitude_column}"
        yield Finding("in-extent", Severity.WARN, named, expected, measured, sample_of(subject, outside))


def _outside(subject: TableSubject, longitude: str, latitude: str, extent: Extent) -> "pa.ChunkedArray":
    """A place that was made coarse may lie outside by as much as it is uncertain."""
    import pyarrow.compute as pc

    longitudes, latitudes = subject.table.column(longitude), subject.table.column(latitude)
    north_south = _slack(subject)
    # The farther from the equator, the more degrees of longitude a metre is.
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


def _slack(subject: TableSubject) -> "pa.ChunkedArray | pa.Scalar":
    """In degrees of latitude."""
    import pyarrow as pa
    import pyarrow.compute as pc

    masked = subject.published != subject.dataset.table and UNCERTAINTY in subject.table.column_names
    if not masked:
        return pa.scalar(0.0)
    return pc.divide(pc.fill_null(subject.table.column(UNCERTAINTY), 0.0), METRES_A_DEGREE)


IN_EXTENT = Rule(
    "in-extent",
    _in_extent,
    "Look whether these places are right (a sign lost, another reference system); declare a larger extent if so.",
)
