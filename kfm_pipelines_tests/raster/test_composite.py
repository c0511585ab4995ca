"""Several rasters become one, pixel by pixel; what is missing counts for nothing."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kfm_pipelines.declarations.rasters import Composite
from kfm_pipelines.raster.composite import combine
from kfm_pipelines_tests.fixtures.rasters.invented import pixels

NAN = np.nan
FIRST, SECOND, THIRD = np.array([[1, NAN, NAN, 4]]), np.array([[3, 2, NAN, 1]]), np.array([[5, 8, NAN, 1]])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("first", [1, 2, NAN, 4]),
        ("min", [1, 2, NAN, 1]),
        ("max", [5, 8, NAN, 4]),
        ("sum", [9, 10, NAN, 6]),
        ("mean", [3, 5, NAN, 2]),
    ],
)
def test_each_way_of_combining(how: Composite, expected: list[float]) -> None:
    found = combine(iter([pixels(FIRST), pixels(SECOND), pixels(THIRD)]), how)
    assert_array_equal(found.values[0], [expected])
    assert found.values.dtype == np.float32


@pytest.mark.parametrize("how", ["refuse", "first", "min", "max", "sum", "mean"])
def test_one_raster_stays_what_it_is(how: Composite) -> None:
    assert_array_equal(combine(iter([pixels(FIRST)]), how).values[0], FIRST)
