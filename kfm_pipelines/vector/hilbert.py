"""The Hilbert curve: neighbours on it are neighbours on the map, so that readers of a few places read a few groups of
rows."""

import numpy as np
import numpy.typing as npt
import shapely

from kfm_pipelines.vector.types import Floats, Shapes

_ORDER = 31  # bits for each axis
_LARGEST = 2**_ORDER - 1


def distances_along(shapes: Shapes) -> npt.NDArray[np.int64]:
    """Returns how far along the curve around the whole earth the middle of each shape's box is."""
    west, south, east, north = shapely.bounds(shapes).T
    return _distances(_scale((west + east) / 2, 180.0), _scale((south + north) / 2, 90.0))


def _scale(degrees: Floats, limit: float) -> npt.NDArray[np.int64]:
    scaled: npt.NDArray[np.int64] = ((degrees + limit) / (2 * limit) * _LARGEST).astype(np.int64)
    return scaled


def _distances(x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    x, y = x.copy(), y.copy()
    distance = np.zeros(len(x), np.int64)
    for bit in reversed(range(_ORDER)):
        right, upper = (x >> bit) & 1, (y >> bit) & 1
        distance = (distance << 2) | ((3 * right) ^ upper)
        flipped = (upper == 0) & (right == 1)
        x[flipped], y[flipped] = _LARGEST - x[flipped], _LARGEST - y[flipped]
        turned = upper == 0
        x[turned], y[turned] = y[turned], x[turned]
    return distance
