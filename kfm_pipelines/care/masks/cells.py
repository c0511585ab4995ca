"""H3 cells of coordinates, and what is published of a cell: its name, centre, outline and radius.

A cell always comes from the coordinate itself. The parent of a finer cell is another one for about 6 % of all places.
"""

from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.types import Cells, Floats, Ints, Objects

NO_CELL = 0
# Of the average edge, at every resolution: next to the twelve pentagons, cells are the smallest.
_SMALLEST_RADIUS_RATIO = 0.7


def cells_of(longitudes: "Floats", latitudes: "Floats", resolution: int) -> "Cells":
    """The cell each coordinate lies in."""
    import numpy as np
    from h3.api.basic_int import latlng_to_cell

    # Taken from the arrays one by one: lists of a million Python numbers would be most of the memory.
    found = map(latlng_to_cell, latitudes, longitudes, repeat(resolution))
    return np.fromiter(found, np.uint64, len(latitudes))


def names_of(cells: "Cells") -> list[str | None]:
    from h3.api.basic_int import int_to_str

    return [int_to_str(cell) if cell != NO_CELL else None for cell in cells.tolist()]


def centres_of(cells: "Cells") -> "tuple[Floats, Floats]":
    """Longitudes and latitudes of the centres."""
    import numpy as np
    from h3.api.basic_int import cell_to_latlng

    found = np.array([cell_to_latlng(cell) for cell in cells.tolist()], np.float64).reshape(-1, 2)
    return found[:, 1].copy(), found[:, 0].copy()


def outlines_of(cells: "Cells") -> "Objects":
    """The outlines as polygons."""
    import numpy as np
    import shapely

    longitudes, latitudes, cell = _corners(cells)
    if not len(cells):
        return np.empty(0, object)
    rings = shapely.linearrings(np.column_stack([longitudes, latitudes]), indices=cell)
    return np.asarray(shapely.polygons(rings), object)


def radii_of(cells: "Cells") -> "Floats":
    """In metres, how far from its centre everything in a cell is at most, rounded up."""
    import numpy as np
    from pyproj import Geod

    longitudes, latitudes, cell = _corners(cells)
    centre_longitudes, centre_latitudes = centres_of(cells)
    _, _, distances = Geod(ellps="WGS84").inv(centre_longitudes[cell], centre_latitudes[cell], longitudes, latitudes)
    farthest = np.zeros(len(cells))
    np.maximum.at(farthest, cell, distances)
    # Edges are arcs on a sphere and distances are on the ellipsoid, so there is some room.
    return np.ceil(farthest * 1.001 + 1)


def smallest_radius(resolution: int) -> float:
    """In metres, what no cell of this resolution has a radius below, wherever it is."""
    from h3.api.basic_int import average_hexagon_edge_length

    return _SMALLEST_RADIUS_RATIO * float(average_hexagon_edge_length(resolution, "m"))


def _corners(cells: "Cells") -> "tuple[Floats, Floats, Ints]":
    """Every corner of every cell, and the position of the cell it belongs to."""
    import numpy as np
    from h3.api.basic_int import cell_to_boundary

    boundaries = [cell_to_boundary(cell) for cell in cells.tolist()]
    corners = np.array([corner for boundary in boundaries for corner in boundary], np.float64).reshape(-1, 2)
    cell = np.repeat(np.arange(len(cells)), [len(boundary) for boundary in boundaries])
    return corners[:, 1], corners[:, 0], cell
