"""Valid shapes, by the rules of simple features, in one form for each shape."""

import numpy as np
import shapely

from kfm_pipelines.vector.types import Flags, Shapes

_POLYGONS = (3, 6)
_MULTIPLE = (4, 5, 6)


def repair(shapes: Shapes) -> tuple[Shapes, Flags]:
    """Returns valid shapes, and which could not be repaired without becoming lines or points of what was an area."""
    wrong = np.flatnonzero(~shapely.is_valid(shapes))
    made = shapely.make_valid(shapes[wrong], method="structure", keep_collapsed=False)
    failed = np.zeros(len(shapes), np.bool_)
    failed[wrong] = (
        shapely.is_empty(made)
        | ~shapely.is_valid(made)
        | (shapely.get_dimensions(made) != shapely.get_dimensions(shapes[wrong]))
    )
    repaired = shapes.copy()
    repaired[wrong] = made
    return repaired, failed


def canonical(shapes: Shapes) -> Shapes:
    """Returns a single part as such, and polygons counter-clockwise, from their least vertex, in order: programs write
    the same shape in different ways. The direction of lines is left alone, because it may mean something."""
    single = np.isin(shapely.get_type_id(shapes), _MULTIPLE) & (shapely.get_num_geometries(shapes) == 1)
    result = np.where(single, shapely.get_geometry(shapes, 0), shapes)
    polygons = np.isin(shapely.get_type_id(result), _POLYGONS)
    result[polygons] = shapely.orient_polygons(shapely.normalize(result[polygons]))
    return result
