"""Rasters: what lies under a sensitive footprint becomes one value, or none. The hole is the circle around an H3 cell
that surely holds the footprint, because one with the footprint's own outline would show it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.masks.cells import NO_CELL, centres_of, radii_of
from kfm_pipelines.care.masks.shapes import REACH, cells_around
from kfm_pipelines.care.rules import MaskRaster
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import numpy.typing as npt
    import shapely

    from kfm_pipelines.care.masks.types import Cells, Flags, Objects

_BORDER_TOLERANCE = 1e-9  # of a cell: what rounding may take from a border
_CIRCLE_CORNERS = 360  # of what is drawn for a circle, a bit larger, so that its straight edges stay outside
_CIRCLE_MARGIN = 1.01
_MAX_LATITUDE = 85.0  # beyond that, and as far south, a circle on the ground is nothing like one in degrees
AffineTransform = tuple[float, float, float, float, float, float]


def mask_raster(
    values: "npt.NDArray[Any]",
    transform: AffineTransform,
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
    for circle in _circles(_footprint_cells(footprints, rule.resolution)):
        under = _cells_touching(circle, transform, values.shape[-2:])
        if rule.method == "nodata":
            published[..., under] = nodata
        else:
            published[..., under] = _means(values, valid & under, nodata)[..., None]
    return published


def _refuse_unfit(values: "npt.NDArray[Any]", transform: AffineTransform, nodata: float) -> None:
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


def _footprint_cells(footprints: "Sequence[shapely.Geometry]", resolution: int) -> "Cells":
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


def _circles(cells: "Cells") -> "Objects":
    """Around each cell, everything that a shape with its middle in the cell can reach."""
    import numpy as np
    import shapely
    from pyproj import Geod

    longitudes, latitudes = (np.repeat(one, _CIRCLE_CORNERS) for one in centres_of(cells))
    angles = np.tile(np.arange(_CIRCLE_CORNERS) * 360 / _CIRCLE_CORNERS, len(cells))
    reach = np.repeat(radii_of(cells) * REACH * _CIRCLE_MARGIN, _CIRCLE_CORNERS)
    east, north, _ = Geod(ellps="WGS84").fwd(longitudes, latitudes, angles, reach)
    if (np.abs(north) > _MAX_LATITUDE).any():
        raise PolicyRefused("a footprint is too close to a pole")
    # In one piece, also where it goes past 180°.
    east = longitudes + (east - longitudes + 180) % 360 - 180
    rings = np.stack([east, north], axis=-1).reshape(-1, _CIRCLE_CORNERS, 2)
    return np.asarray(shapely.polygons(rings), object)


def _cells_touching(circle: "shapely.Geometry", transform: AffineTransform, shape: tuple[int, ...]) -> "Flags":
    """Which raster cells touch the circle or lie within. It has no bays, so those in a row are next to each other."""
    import numpy as np
    import shapely

    width, _, west, _, height, north = transform
    rows, columns = shape
    north_edges = north + height * np.arange(rows)
    west_end, _, east_end, _ = shapely.bounds(circle)
    strips = shapely.box(west_end - 1, north_edges + height, east_end + 1, north_edges)
    ends = shapely.bounds(shapely.intersection(circle, strips))  # NaN where they do not meet
    found = np.zeros(shape, np.bool_)
    for turn in (-360, 0, 360):  # what goes past 180° comes back on the other side
        first = np.floor((ends[:, 0] + turn - west) / width - _BORDER_TOLERANCE)
        last = np.floor((ends[:, 2] + turn - west) / width + _BORDER_TOLERANCE)
        found |= (np.arange(columns) >= first[:, None]) & (np.arange(columns) <= last[:, None])
    return found


def _means(values: "npt.NDArray[Any]", chosen: "Flags", nodata: float) -> "npt.NDArray[Any]":
    """For each band the mean of the chosen values. That of a single one would be the value itself."""
    import numpy as np

    counts = chosen.sum(axis=(-2, -1))
    sums = np.where(chosen, values, 0).sum(axis=(-2, -1), dtype=np.float64)
    means = sums / np.maximum(counts, 1)
    if np.issubdtype(values.dtype, np.integer):
        means = np.rint(means)
    return np.where(counts >= 2, means, nodata)
