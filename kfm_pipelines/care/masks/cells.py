"""H3 cells of coordinates, and what is published of a cell: its name, centre, outline and radius.

A cell is always derived from the coordinate: for about 6 % of places, the parent of the finer cell is a different one.
A line or polygon becomes one cell, because two would reveal that it crosses the border between them. Its size alone
decides how coarse the cell is: if crossing an edge mattered, every shape in a coarser cell would be known to lie near
an edge.
"""

from itertools import repeat

import numpy as np
import shapely
from h3.api.basic_int import average_hexagon_edge_length, cell_to_boundary, cell_to_latlng, int_to_str, latlng_to_cell
from pyproj import Geod

from kfm_pipelines.care.masks.types import Cells, Floats, Ints, Objects

NO_CELL = 0
_SMALLEST_RADIUS_RATIO = 0.7  # of the average edge; the smallest cells are next to the twelve pentagons


def cells_of(longitudes: Floats, latitudes: Floats, resolution: int) -> Cells:
    # Iterates over the arrays: lists of a million Python numbers would take most of the memory.
    found = map(latlng_to_cell, latitudes, longitudes, repeat(resolution))
    return np.fromiter(found, np.uint64, len(latitudes))


def names_of(cells: Cells) -> list[str | None]:
    return [int_to_str(cell) if cell != NO_CELL else None for cell in cells.tolist()]


def centres_of(cells: Cells) -> tuple[Floats, Floats]:
    """Returns longitudes and latitudes."""
    found = np.array([cell_to_latlng(cell) for cell in cells.tolist()], np.float64).reshape(-1, 2)
    return found[:, 1].copy(), found[:, 0].copy()


def outlines_of(cells: Cells) -> Objects:
    longitudes, latitudes, cell = _corners(cells)
    if not len(cells):
        return np.empty(0, object)
    rings = shapely.linearrings(np.column_stack([longitudes, latitudes]), indices=cell)
    return np.asarray(shapely.polygons(rings), object)


def radii_of(cells: Cells) -> Floats:
    """Returns the distance in metres from each centre to the farthest corner, rounded up."""
    longitudes, latitudes, cell = _corners(cells)
    centre_longitudes, centre_latitudes = centres_of(cells)
    _, _, distances = Geod(ellps="WGS84").inv(centre_longitudes[cell], centre_latitudes[cell], longitudes, latitudes)
    farthest = np.zeros(len(cells))
    np.maximum.at(farthest, cell, distances)
    # A margin, because edges are arcs on a sphere and distances are on the ellipsoid.
    return np.ceil(farthest * 1.001 + 1)


def smallest_radius(resolution: int) -> float:
    """Returns a lower bound in metres for the radius of any cell of this resolution."""
    return _SMALLEST_RADIUS_RATIO * float(average_hexagon_edge_length(resolution, "m"))


def _corners(cells: Cells) -> tuple[Floats, Floats, Ints]:
    """Returns longitudes and latitudes of all corners, and the position of the cell each belongs to."""
    boundaries = [cell_to_boundary(cell) for cell in cells.tolist()]
    corners = np.array([corner for boundary in boundaries for corner in boundary], np.float64).reshape(-1, 2)
    cell = np.repeat(np.arange(len(cells)), [len(boundary) for boundary in boundaries])
    return corners[:, 1], corners[:, 0], cell


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
