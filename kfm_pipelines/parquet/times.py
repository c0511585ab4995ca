"""Which rows of a table lie outside a window of time."""

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def times_outside(times: "pa.ChunkedArray", window: tuple[datetime, datetime]) -> "pa.ChunkedArray":
    """Marks times before the start or from the end on: a reading at the end belongs to the next window. Nulls stay."""
    import pyarrow as pa
    import pyarrow.compute as pc

    instants = to_instants(times)
    start, end = (pa.scalar(moment, instants.type) for moment in window)
    return pc.or_(pc.less(instants, start), pc.greater_equal(instants, end))


def to_instants(times: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Returns the first instant of each date; times are instants already."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    return times.cast(pa.timestamp("us")).cast(instant) if pa.types.is_date(times.type) else times
