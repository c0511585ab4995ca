"""Lines and polygons: each becomes one cell. Two cells would tell that a border between them is crossed."""

from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import NO_CELL, cells_of, centres_of, radii_of

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.arrays import Cells, Flags, Floats, Objects

# Between corners a line is straight in degrees, not on the ground: short pieces, and some room, make up for that.
_STEP_DEGREES = 0.05
_ROOM = 1.001


def cells_around(shapes: "Objects", resolution: int) -> "Cells":
    """For each shape the cell of its middle, at this resolution or the next coarser one at which the whole shape lies
    within the cell's radius. NO_CELL for a shape that is larger than any cell."""
    import numpy as np
    import shapely

    middles = shapely.centroid(shapes)
    longitudes, latitudes = shapely.get_x(middles), shapely.get_y(middles)
    found = np.full(len(shapes), NO_CELL, np.uint64)
    for coarser in range(resolution, -1, -1):
        left = np.flatnonzero(found == NO_CELL)
        if not len(left):
            break
        cells = cells_of(longitudes[left], latitudes[left], coarser)
        fits = _lie_within(shapes[left], cells)
        found[left[fits]] = cells[fits]
    return found


def _lie_within(shapes: "Objects", cells: "Cells") -> "Flags":
    import numpy as np

    distinct, cell = np.unique(cells, return_inverse=True)
    longitudes, latitudes = centres_of(distinct)
    farthest = _farthest(shapes, longitudes[cell], latitudes[cell])
    return np.asarray(farthest * _ROOM <= radii_of(distinct)[cell], np.bool_)


def _farthest(shapes: "Objects", longitudes: "Floats", latitudes: "Floats") -> "Floats":
    """In metres, how far the farthest bit of each shape is from the coordinate given for it."""
    import numpy as np
    import shapely
    from pyproj import Geod

    corners, shape = shapely.get_coordinates(shapely.segmentize(shapes, _STEP_DEGREES), return_index=True)
    _, _, distances = Geod(ellps="WGS84").inv(longitudes[shape], latitudes[shape], corners[:, 0], corners[:, 1])
    farthest = np.zeros(len(shapes))
    np.maximum.at(farthest, shape, distances)
    return farthest
