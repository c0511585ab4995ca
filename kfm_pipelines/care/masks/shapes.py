"""Generalises lines and polygons, each to one cell: two would reveal that the shape crosses the border between them.

The size of a shape alone decides how coarse its cell is. If crossing an edge mattered, every shape in a coarser cell
would be known to lie near an edge.
"""

import numpy as np
import shapely
from pyproj import Geod

from kfm_pipelines.care.masks.cells import NO_CELL, cells_of, smallest_radius
from kfm_pipelines.care.masks.types import Cells, Floats, Objects

REACH = 1.5  # radii; a shape extends at most half a radius from its centroid, which may be anywhere in the cell
# Between corners a line is straight in degrees, not on the ground: short steps and a margin make up for that.
_STEP_DEGREES = 0.05
_SIZE_MARGIN = 1.001


def cells_around(shapes: Objects, resolution: int) -> Cells:
    """Returns the cell of each shape's centroid, at the finest resolution up to this one at which all of the shape is
    within REACH radii of the cell's centre; NO_CELL for a shape too large for any cell."""
    middles = shapely.centroid(shapes)
    longitudes, latitudes = shapely.get_x(middles), shapely.get_y(middles)
    sizes = _farthest_distances(shapes, longitudes, latitudes) * _SIZE_MARGIN
    found = np.full(len(shapes), NO_CELL, np.uint64)
    for coarser in range(resolution, -1, -1):
        fits = (found == NO_CELL) & (sizes <= (REACH - 1) * smallest_radius(coarser))
        found[fits] = cells_of(longitudes[fits], latitudes[fits], coarser)
    return found


def _farthest_distances(shapes: Objects, longitudes: Floats, latitudes: Floats) -> Floats:
    """Returns the distance in metres from each coordinate to the farthest point of its shape."""
    corners, shape = shapely.get_coordinates(shapely.segmentize(shapes, _STEP_DEGREES), return_index=True)
    _, _, distances = Geod(ellps="WGS84").inv(longitudes[shape], latitudes[shape], corners[:, 0], corners[:, 1])
    farthest = np.zeros(len(shapes))
    np.maximum.at(farthest, shape, distances)
    return farthest
