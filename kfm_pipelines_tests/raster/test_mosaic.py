"""Tiles whose pixels coincide form one grid, that of the file they were cut from; others are refused."""

import numpy as np
import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.grid import PixelGrid
from kfm_pipelines.raster.mosaic import part_within, union_of
from kfm_pipelines_tests.fixtures.rasters.invented import NORTH, PIXEL, WEST, pixels


def grid(
    columns: int, rows: int, *, east: float = 0, south: float = 0, pixel: float = PIXEL, crs: str = "EPSG:4326"
) -> PixelGrid:
    """Begins so many pixels east and south of the usual origin."""
    west, north = WEST + east * PIXEL, NORTH - south * PIXEL
    return pixels(np.zeros((rows, columns)), crs, pixel, west=west, north=north).grid


def test_the_union_of_tiles_is_the_grid_they_were_cut_from() -> None:
    whole = grid(4, 3)
    tiles = {"a": grid(2, 2), "b": grid(2, 2, east=2), "c": grid(2, 1, south=2), "d": grid(2, 1, east=2, south=2)}
    assert union_of(tiles) == whole
    assert union_of({name: tiles[name] for name in "dbca"}).agrees_with(whole)
    assert union_of({"a": grid(1, 1), "b": grid(1, 1, east=3, south=2)}) == whole  # with a gap between them


@pytest.mark.parametrize(
    "other",
    [
        grid(2, 2, east=0.5),
        grid(2, 2, south=1.02),
        grid(2, 2, pixel=PIXEL / 2),
        grid(2, 2, pixel=PIXEL * 1.01),
        grid(2, 2, crs="EPSG:4269"),
    ],
)
def test_a_tile_between_the_pixels_of_another_is_refused_with_both_grids(other: PixelGrid) -> None:
    with pytest.raises(InputUnreadable, match=r"b has another grid than a, of which it is no tile: 2 × 2 pixels of .*"):
        union_of({"a": grid(2, 2), "b": other})


def test_an_origin_that_is_rounded_is_the_same() -> None:
    assert union_of({"a": grid(2, 2), "b": grid(2, 2, east=2.000001)}) == grid(4, 2)


def test_the_part_of_a_tile_within_a_window() -> None:
    window = grid(4, 4, east=2, south=2)
    part = part_within(grid(4, 4), window)
    assert part is not None
    assert (part.col_off, part.row_off, part.width, part.height) == (2, 2, 2, 2)
    inner = part_within(grid(9, 9), window)
    assert inner is not None
    assert (inner.col_off, inner.row_off, inner.width, inner.height) == (2, 2, 4, 4)
    assert part_within(grid(2, 2), window) is None
