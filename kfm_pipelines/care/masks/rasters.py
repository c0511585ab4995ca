"""Rasters: what lies under a sensitive footprint becomes one value, or none. The hole is as wide as an H3 cell, because
one with the footprint's own outline would show it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.masks.cells import NO_CELL, outlines_of
from kfm_pipelines.care.masks.shapes import cells_around
from kfm_pipelines.care.rules import MaskRaster
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import numpy.typing as npt
    import shapely

    from kfm_pipelines.care.masks.arrays import Cells, Flags

_TOUCH = 1e-9  # of a cell: what rounding may take from a border
Transform = tuple[float, float, float, float, float, float]


def masked_raster(
    values: "npt.NDArray[Any]",
    transform: Transform,
    footprints: "Sequence[shapely.Geometry]",
    rule: MaskRaster,
    nodata: float,
) -> "npt.NDArray[Any]":
    """`values` has rows from north to south as its last two axes; others, such as bands, are masked alike.
    `transform` is affine: x = a·column + b·row + c, y = d·column + e·row + f, in degrees."""
    import numpy as np

    _refuse_unfit(values, transform, nodata)
    published = values.copy()
    valid = (values != nodata) & ~np.isnan(values)
    for outline in outlines_of(_cells(footprints, rule.resolution)):
        under = _touching(outline, transform, values.shape[-2:])
        if rule.method == "nodata":
            published[..., under] = nodata
        else:
            published[..., under] = _means(values, valid & under, nodata)[..., None]
    return published


def _refuse_unfit(values: "npt.NDArray[Any]", transform: Transform, nodata: float) -> None:
    import numpy as np

    width, skew, _, tilt, height, _ = transform
    if skew != 0 or tilt != 0 or width <= 0 or height >= 0:
        raise PolicyRefused("the raster must be north-up, with columns from west to east and rows from north to south")
    if values.ndim < 2:
        raise PolicyRefused("the raster must have rows and columns")
    if np.issubdtype(values.dtype, np.integer):
        limits = np.iinfo(values.dtype)
        if not (limits.min <= nodata <= limits.max and nodata == int(nodata)):
            raise PolicyRefused("the raster's type has no room for its nodata value")


def _cells(footprints: "Sequence[shapely.Geometry]", resolution: int) -> "Cells":
    import numpy as np
    import shapely

    shapes = np.array([*footprints, None], object)[:-1]
    corners = shapely.get_coordinates(shapes)
    if (shapely.is_missing(shapes) | shapely.is_empty(shapes)).any() or not np.isfinite(corners).all():
        raise PolicyRefused("a footprint is empty or has a coordinate that is no finite number")
    cells = np.unique(cells_around(shapes, resolution))
    if NO_CELL in cells:
        raise PolicyRefused("a footprint is larger than any cell")
    return cells


def _touching(outline: "shapely.Geometry", transform: Transform, shape: tuple[int, ...]) -> "Flags":
    """Which raster cells touch the outline or lie within. It has no bays, so those in a row are next to each other."""
    import numpy as np
    import shapely

    width, _, west, _, height, north = transform
    rows, columns = shape
    north_edges = north + height * np.arange(rows)
    west_end, _, east_end, _ = shapely.bounds(outline)
    strips = shapely.box(west_end - 1, north_edges + height, east_end + 1, north_edges)
    ends = shapely.bounds(shapely.intersection(outline, strips))  # NaN where they do not meet
    first = np.floor((ends[:, 0] - west) / width - _TOUCH)
    last = np.floor((ends[:, 2] - west) / width + _TOUCH)
    column = np.arange(columns)
    return np.asarray((column >= first[:, None]) & (column <= last[:, None]), np.bool_)


def _means(values: "npt.NDArray[Any]", chosen: "Flags", nodata: float) -> "npt.NDArray[Any]":
    """For each band the mean of the chosen values. That of a single one would be the value itself."""
    import numpy as np

    counts = chosen.sum(axis=(-2, -1))
    sums = np.where(chosen, values, 0).sum(axis=(-2, -1), dtype=np.float64)
    means = sums / np.maximum(counts, 1)
    if np.issubdtype(values.dtype, np.integer):
        means = np.rint(means)
    return np.where(counts >= 2, means, nodata)
