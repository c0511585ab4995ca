"""How the polygons of one layer lie to each other: which overlap, and what they leave open between them.

The work is limited: a layer whose boxes lie on each other by the million is not compared to its end.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely

from kfm_pipelines.vector.types import Flags, Floats, Shapes

METRES_PER_DEGREE = 111_195.0
_POLYGONS = (3, 6)
_BOXES_AT_ONCE, _COMPARED_AT_ONCE = 2_000_000, 10_000  # pairs of boxes in memory, and of shapes
_BOXES_EACH, _BOXES_BESIDES = 200, 10_000  # pairs of boxes that are compared: of each shape on average, and besides
_MOST_VERTICES = 500_000_000  # of all pairs that are compared
_MOST_OVERLAPS = 10_000
_MOST_VERTICES_JOINED = 2_000_000

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Overlaps:
    pairs: int
    shapes: Flags  # which of them overlap another
    is_complete: bool = True  # whether all were compared


def find_overlaps(shapes: Shapes, tolerance_m2: float) -> Overlaps:
    """Compares valid polygons; other shapes do not count, nor does what two have in common up to the tolerance."""
    found, pairs = np.zeros(len(shapes), np.bool_), 0
    areal = np.flatnonzero(is_areal(shapes))
    compared = shapes[areal]
    shapely.prepare(compared)
    budget = _Budget(_BOXES_EACH * len(compared) + _BOXES_BESIDES, shapely.get_num_coordinates(compared))
    for first, second in _box_pairs(compared):
        if not budget.allows(first, second):
            return Overlaps(pairs, found, is_complete=False)
        wide = _common_area(compared[first], compared[second]) > tolerance_m2
        found[areal[first[wide]]] = found[areal[second[wide]]] = True
        pairs += int(wide.sum())
        if pairs > _MOST_OVERLAPS:
            return Overlaps(pairs, found, is_complete=False)
    return Overlaps(pairs, found)


def _common_area(some: Shapes, others: Shapes) -> Floats:
    """Intersects only pairs that have more in common than an edge; neighbours on a map are most of them."""
    areas = np.zeros(len(some))
    meet = np.flatnonzero(shapely.intersects(some, others))
    inside = meet[~shapely.touches(some[meet], others[meet])]
    areas[inside] = square_metres(shapely.intersection(some[inside], others[inside]))
    return areas


def count_gaps(shapes: Shapes, tolerance_m2: float) -> int | None:
    """Counts what the polygons surround together and none of them covers; None if they have too many vertices."""
    areal = shapes[is_areal(shapes)]
    if int(shapely.get_num_coordinates(areal).sum()) > _MOST_VERTICES_JOINED:
        return None
    parts = shapely.get_parts(shapely.union_all(areal))
    rings, owners = shapely.get_rings(parts, return_index=True)
    inner = np.diff(owners, prepend=-1) == 0  # the first of each part is its outer one
    return int((square_metres(shapely.polygons(rings[inner])) > tolerance_m2).sum())


def is_areal(shapes: Shapes) -> Flags:
    """Whether shapes are valid polygons."""
    polygons: Flags = np.isin(shapely.get_type_id(shapes), _POLYGONS)
    polygons[polygons] = shapely.is_valid(shapes[polygons])
    return polygons


def square_metres(shapes: Shapes) -> Floats:
    """Returns the areas of small shapes in degrees, within a per cent."""
    bounds = shapely.bounds(shapes).reshape(-1, 4)
    middle = np.radians((bounds[:, 1] + bounds[:, 3]) / 2)
    areas: Floats = np.nan_to_num(shapely.area(shapes) * METRES_PER_DEGREE**2 * np.cos(middle))
    return areas


class _Budget:
    """Counts what is compared, and ends it."""

    def __init__(self, boxes: int, vertices: npt.NDArray[np.int_]) -> None:
        self._boxes, self._vertices, self._of_shape = boxes, _MOST_VERTICES, vertices

    def allows(self, first: Places, second: Places) -> bool:
        self._boxes -= len(first)
        self._vertices -= int(self._of_shape[first].sum() + self._of_shape[second].sum())
        return self._boxes >= 0 and self._vertices >= 0


def _box_pairs(shapes: Shapes) -> Iterator[tuple[Places, Places]]:
    """Yields pairs of shapes whose boxes meet, each pair once, some at a time, so that one can stop in between."""
    if not len(shapes):
        return
    tree = shapely.STRtree(shapes)
    at_once = max(1, _BOXES_AT_ONCE // len(shapes))
    for start in range(0, len(shapes), at_once):
        first, second = tree.query(shapes[start : start + at_once])
        once = first + start < second
        first, second = first[once] + start, second[once]
        for place in range(0, len(first), _COMPARED_AT_ONCE):
            yield first[place : place + _COMPARED_AT_ONCE], second[place : place + _COMPARED_AT_ONCE]
