"""Lines and polygons: each becomes one cell. Two cells would tell that a border between them is crossed.

How coarse that cell is follows from the size of the shape alone. If it followed from whether the shape reaches over the
edge, every shape in a coarser cell would be one that lies close to an edge.
"""

from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import NO_CELL, cells_of, smallest_radius

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.types import Cells, Floats, Objects

# A shape reaches at most half a radius from its middle, which is anywhere in the cell.
REACH = 1.5
# Between corners a line is straight in degrees, not on the ground: short pieces, and some room, make up for that.
_STEP_DEGREES = 0.05
_SIZE_MARGIN = 1.001


def cells_around(shapes: "Objects", resolution: int) -> "Cells":
    """For each shape the cell of its middle, at this resolution or the next coarser one at which the shape is small
    enough: then all of it is within REACH radii of the cell's centre. NO_CELL for a shape too large for any cell."""
    import numpy as np
    import shapely

    middles = shapely.centroid(shapes)
    longitudes, latitudes = shapely.get_x(middles), shapely.get_y(middles)
    sizes = _farthest_distances(shapes, longitudes, latitudes) * _SIZE_MARGIN
    found = np.full(len(shapes), NO_CELL, np.uint64)
    for coarser in range(resolution, -1, -1):
        fits = (found == NO_CELL) & (sizes <= (REACH - 1) * smallest_radius(coarser))
        found[fits] = cells_of(longitudes[fits], latitudes[fits], coarser)
    return found


def _farthest_distances(shapes: "Objects", longitudes: "Floats", latitudes: "Floats") -> "Floats":
    """In metres, how far the farthest bit of each shape is from the coordinate given for it."""
    import numpy as np
    import shapely
    from pyproj import Geod

    corners, shape = shapely.get_coordinates(shapely.segmentize(shapes, _STEP_DEGREES), return_index=True)
    _, _, distances = Geod(ellps="WGS84").inv(longitudes[shape], latitudes[shape], corners[:, 0], corners[:, 1])
    farthest = np.zeros(len(shapes))
    np.maximum.at(farthest, shape, distances)
    return farthest
