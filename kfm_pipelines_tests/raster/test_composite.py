"""Several rasters become one, pixel by pixel; what is missing counts for nothing."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kfm_pipelines.declarations.rasters import Composite
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.composite import combine
from kfm_pipelines_tests.fixtures.rasters.invented import PIXEL, WEST, pixels

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
    found = combine(iter([pixels(FIRST), pixels(SECOND), pixels(THIRD)]), pixels(FIRST).grid, 1, how)
    assert_array_equal(found.values[0], [expected])
    assert found.values.dtype == np.float32


@pytest.mark.parametrize("how", ["refuse", "first", "min", "max", "sum", "mean"])
def test_one_raster_stays_what_it_is(how: Composite) -> None:
    assert_array_equal(combine(iter([pixels(FIRST)]), pixels(FIRST).grid, 1, how).values[0], FIRST)


@pytest.mark.parametrize(
    ("how", "middle"), [("first", [1, 2]), ("min", [1, 2]), ("max", [5, 6]), ("sum", [6, 8]), ("mean", [3, 4])]
)
def test_tiles_are_combined_where_they_overlap_and_stand_alone_elsewhere(how: Composite, middle: list[float]) -> None:
    left, right = pixels(np.array([[0, 1, 2]])), pixels(np.array([[5, 6, 7]]), west=WEST + PIXEL)
    found = combine(iter([left, right]), pixels(np.zeros((2, 5))).grid, 1, how)
    assert_array_equal(found.values[0], [[0, *middle, 7, NAN], [NAN] * 5])


def test_a_sum_that_no_32_bit_float_holds_is_refused() -> None:
    most = pixels(np.array([[3e38]]))
    with pytest.raises(InputUnreadable, match="add up to values beyond 32-bit floats"):
        combine(iter([most, most]), most.grid, 1, "sum")


def test_memory_is_bounded_by_the_window_however_many_tiles_there_are() -> None:
    """Forty layers of 4 MB and the result, of which only one layer and the result are there at a time."""
    size = 1000
    grid = pixels(np.zeros((size, size))).grid
    tracemalloc.start()
    combine((pixels(np.full((size, size), number)) for number in range(40)), grid, 1, "max")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * 4 * size**2
