"""Places are numbered along one curve through all of the earth."""

import numpy as np
import shapely
from geopandas.tools.hilbert_curve import _encode

from kfm_pipelines.vector.hilbert import _distances, distances_along


def test_each_step_along_the_curve_is_to_a_neighbour() -> None:
    """On the coarsest cells of the curve, of which every one is visited once."""
    cells = 2**3
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(cells), np.arange(cells)))
    order = np.argsort(_distances(x << 28, y << 28))
    steps = abs(np.diff(x[order])) + abs(np.diff(y[order]))
    assert (steps == 1).all()
    assert len(set(order)) == cells**2


def test_the_order_is_that_of_another_implementation() -> None:
    random = np.random.default_rng(7)
    x, y = random.integers(0, 2**16, (2, 500))
    mine = np.argsort(_distances(x << 15, y << 15))
    other = np.argsort(_encode(16, x.astype(np.uint32), y.astype(np.uint32)))
    assert mine.tolist() == other.tolist()


def test_a_shape_is_where_the_middle_of_its_box_is() -> None:
    box, point = shapely.box(-99, 38, -97, 40), shapely.Point(-98, 39)
    [one, other] = distances_along(np.array([box, point]))
    assert one == other
    corners = np.array([shapely.Point(-180, -90), shapely.Point(180, 90)])
    assert 0 <= distances_along(corners).min() < distances_along(corners).max() < 2**62
