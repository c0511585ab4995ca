"""Cuts shapes off at the border of an area."""

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

from kfm_pipelines.vector.systems import DECIMALS, round_coordinates
from kfm_pipelines.vector.types import Flags, Shapes
from kfm_pipelines.vector.validity import canonical

_COLLECT = (shapely.multipoints, shapely.multilinestrings, shapely.multipolygons)


def clip(shapes: Shapes, area: BaseGeometry) -> tuple[Shapes, Flags]:
    """Returns the parts of shapes that are in the area, and which shapes have any. What only touches it has none."""
    shapely.prepare(area)
    whole = shapely.covers(area, shapes)
    cut = np.flatnonzero(~whole & shapely.intersects(area, shapes))
    clipped, remains = shapes.copy(), whole.copy()
    if len(cut):
        # On a grid, so that rounding cannot make it invalid afterwards.
        parts = shapely.intersection(shapes[cut], area, grid_size=10.0**-DECIMALS)
        clipped[cut] = [_same_dimension(part, shape) for part, shape in zip(parts, shapes[cut], strict=True)]
        clipped[cut] = canonical(shapely.transform(clipped[cut], round_coordinates))
        remains[cut] = ~shapely.is_empty(clipped[cut])
    return clipped, remains


def _same_dimension(part: BaseGeometry, shape: BaseGeometry) -> BaseGeometry:
    dimension = shapely.get_dimensions(shape)
    parts = shapely.get_parts(part)
    return _COLLECT[dimension](parts[shapely.get_dimensions(parts) == dimension])
