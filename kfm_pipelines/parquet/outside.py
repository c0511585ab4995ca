"""Which rows of a table lie outside an area or a window of time.

A point on the border is inside. Any other geometry is inside if it has a point in common with the area, so a feature
that crosses the border is inside too.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.tables import arrow_type
from kfm_pipelines.parquet.geoparquet import coordinates_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

# In degrees, a tenth of a millimetre: what is cut at the border may lie this far off it by rounding.
ROUNDING = 1e-9
SHAPES_AT_ONCE = 65_536


def rows_outside(table: "pa.Table", declaration: Table, area: Area) -> "NDArray[np.bool_] | None":
    """Marks the rows outside; those without a place, or with one that cannot be read, are not. None if the table has no
    places, or not of the declared type, which the schema gate refuses."""
    names = declaration.position_columns
    declared = {name: arrow_type(declaration.column(name).type) for name in names}
    if any(name not in table.column_names or table.schema.field(name).type != declared[name] for name in names):
        return None
    if len(names) == 2:
        longitudes, latitudes = (table.column(name).to_numpy() for name in names)
        return _points_outside(longitudes, latitudes, area)
    return _geometries_outside(table.column(names[0]), area) if names else None


def _points_outside(
    longitudes: "NDArray[np.float64]", latitudes: "NDArray[np.float64]", area: Area
) -> "NDArray[np.bool_]":
    import numpy as np
    import shapely

    outside: NDArray[np.bool_] = ~shapely.intersects_xy(area.shape, longitudes, latitudes)
    return outside & ~np.isnan(longitudes) & ~np.isnan(latitudes)  # NaN stands for null as well


def _geometries_outside(column: "pa.ChunkedArray", area: Area) -> "NDArray[np.bool_]":
    import numpy as np

    # Loads numpy and pyarrow, which loading the definitions must not.
    from kfm_pipelines.parquet.distinct_values import encode_column
    from kfm_pipelines.parquet.parquet import flatten

    points = coordinates_of(flatten(column).drop_null())
    if points is None:
        encoded = encode_column(column)
        return encoded.rows_with(_shapes_outside(encoded.distinct, area))
    outside = np.zeros(len(column), np.bool_)
    outside[column.is_valid().to_numpy()] = _points_outside(points[:, 0], points[:, 1], area)
    return outside


def _shapes_outside(values: "pa.Array", area: Area) -> "NDArray[np.bool_]":
    """A few at a time, because shapes take much more memory than their bytes."""
    import numpy as np

    parts = (values.slice(start, SHAPES_AT_ONCE) for start in range(0, len(values), SHAPES_AT_ONCE))
    return np.concatenate([np.zeros(0, np.bool_), *(_few_outside(part, area) for part in parts)])


def _few_outside(values: "pa.Array", area: Area) -> "NDArray[np.bool_]":
    import numpy as np
    import shapely

    with np.errstate(invalid="ignore"):
        shapes = shapely.from_wkb(values.to_numpy(zero_copy_only=False), on_invalid="ignore")
        outside: NDArray[np.bool_] = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
        outside &= ~shapely.intersects(area.shape, shapes)
        outside[outside] = ~shapely.dwithin(area.shape, shapes[outside], ROUNDING)
    return outside


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
