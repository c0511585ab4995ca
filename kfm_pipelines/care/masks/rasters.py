"""Masks rasters: a circle around an H3 cell, which holds the sensitive footprint, becomes one value or nodata."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely
from h3.api.basic_int import average_hexagon_edge_length
from pyproj import Geod

from kfm_pipelines.care.masks.cells import NO_CELL, REACH, cells_around, centres_of, radii_of
from kfm_pipelines.care.masks.types import Cells, Flags, Objects
from kfm_pipelines.care.rules import MaskRaster
from kfm_pipelines.errors import PolicyRefused

_BORDER_TOLERANCE = 1e-9  # fraction of a cell that rounding may shift a border by
_CIRCLE_CORNERS = 360
_CIRCLE_MARGIN = 1.01  # keeps the polygon's straight edges outside the circle
_MAX_LATITUDE = 85.0  # nearer to a pole, a circle on the ground is nothing like one in degrees
AffineTransform = tuple[float, float, float, float, float, float]


def mask_raster(
    values: npt.NDArray[Any],
    transform: AffineTransform,
    footprints: Sequence[shapely.Geometry],
    rule: MaskRaster,
    nodata: float,
) -> npt.NDArray[Any]:
    """The last two axes of `values` are rows from north to south and columns; others, such as bands, are masked alike.
    `transform` is affine: x = a·column + b·row + c, y = d·column + e·row + f, in degrees."""
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


def hidden_radius(resolution: int) -> float:
    """Returns the radius in metres of the circle that a footprint usually disappears in."""
    return float(round(REACH * average_hexagon_edge_length(resolution, "m")))


def _refuse_unfit(values: npt.NDArray[Any], transform: AffineTransform, nodata: float) -> None:
    width, skew, _, tilt, height, _ = transform
    if skew != 0 or tilt != 0 or width <= 0 or height >= 0:
        raise PolicyRefused("the raster must be north-up, with columns from west to east and rows from north to south")
    if values.ndim < 2:
        raise PolicyRefused("the raster must have rows and columns")
    if np.issubdtype(values.dtype, np.integer):
        limits = np.iinfo(values.dtype)
        if not (limits.min <= nodata <= limits.max and nodata == int(nodata)):
            raise PolicyRefused("the raster's type cannot hold its nodata value")


def _footprint_cells(footprints: Sequence[shapely.Geometry], resolution: int) -> Cells:
    shapes = np.array([*footprints, None], object)[:-1]
    corners = shapely.get_coordinates(shapes)
    if (shapely.is_missing(shapes) | shapely.is_empty(shapes)).any() or not np.isfinite(corners).all():
        raise PolicyRefused("a footprint is empty or has a coordinate that is not a finite number")
    cells = np.unique(cells_around(shapes, resolution))
    if NO_CELL in cells:
        raise PolicyRefused("a footprint is larger than any cell")
    return cells


def _circles(cells: Cells) -> Objects:
    """Returns circles that hold any shape whose centroid lies in the cell."""
    longitudes, latitudes = (np.repeat(one, _CIRCLE_CORNERS) for one in centres_of(cells))
    angles = np.tile(np.arange(_CIRCLE_CORNERS) * 360 / _CIRCLE_CORNERS, len(cells))
    reach = np.repeat(radii_of(cells) * REACH * _CIRCLE_MARGIN, _CIRCLE_CORNERS)
    east, north, _ = Geod(ellps="WGS84").fwd(longitudes, latitudes, angles, reach)
    if (np.abs(north) > _MAX_LATITUDE).any():
        raise PolicyRefused("a footprint is too close to a pole")
    # Keeps a circle contiguous where it crosses 180°.
    east = longitudes + (east - longitudes + 180) % 360 - 180
    rings = np.stack([east, north], axis=-1).reshape(-1, _CIRCLE_CORNERS, 2)
    return np.asarray(shapely.polygons(rings), object)


def _cells_touching(circle: shapely.Geometry, transform: AffineTransform, shape: tuple[int, ...]) -> Flags:
    """Flags raster cells that touch the circle. It is convex, so those of one row are contiguous."""
    width, _, west, _, height, north = transform
    rows, columns = shape
    north_edges = north + height * np.arange(rows)
    west_end, _, east_end, _ = shapely.bounds(circle)
    strips = shapely.box(west_end - 1, north_edges + height, east_end + 1, north_edges)
    ends = shapely.bounds(shapely.intersection(circle, strips))  # NaN where they do not meet
    found = np.zeros(shape, np.bool_)
    for turn in (-360, 0, 360):  # wraps around at 180°
        first = np.floor((ends[:, 0] + turn - west) / width - _BORDER_TOLERANCE)
        last = np.floor((ends[:, 2] + turn - west) / width + _BORDER_TOLERANCE)
        found |= (np.arange(columns) >= first[:, None]) & (np.arange(columns) <= last[:, None])
    return found


def _means(values: npt.NDArray[Any], chosen: Flags, nodata: float) -> npt.NDArray[Any]:
    """Returns the mean per band, or nodata for a single value, whose mean would reveal it."""
    counts = chosen.sum(axis=(-2, -1))
    sums = np.where(chosen, values, 0).sum(axis=(-2, -1), dtype=np.float64)
    means = sums / np.maximum(counts, 1)
    if np.issubdtype(values.dtype, np.integer):
        means = np.rint(means)
    return np.where(counts >= 2, means, nodata)
