"""The grid of a mosaic: tiles whose pixels coincide, as parts of one grid. Only grids are looked at, no pixels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.grid import PixelGrid, describe

if TYPE_CHECKING:
    from rasterio.windows import Window


def union_of(grids: Mapping[str, PixelGrid]) -> PixelGrid:
    """Returns the smallest grid that contains those of all objects, which are given by name. Raises InputUnreadable
    unless they have one reference system and pixel size, and whole pixels between them."""
    from affine import Affine

    base = next(iter(grids))
    first = grids[base]
    for name, grid in grids.items():
        if not first.is_aligned_with(grid):
            raise InputUnreadable(
                f"{name} has another grid than {base}, of which it is no tile: {_in_words(grid)}, "
                f"and not {_in_words(first)} or whole pixels from there"
            )
    # Origins are those that tiles state, so that the mosaic has the very grid of the file they were cut from.
    places = {name: first.offset_of(grid) for name, grid in grids.items()}
    leftmost, topmost = (min(places, key=lambda name: places[name][side]) for side in (0, 1))
    right = max(places[name][0] + grid.width for name, grid in grids.items())
    bottom = max(places[name][1] + grid.height for name, grid in grids.items())
    west, north = grids[leftmost].transform.c, grids[topmost].transform.f
    transform = Affine(first.transform.a, 0.0, west, 0.0, first.transform.e, north)
    return PixelGrid(first.crs, transform, right - places[leftmost][0], bottom - places[topmost][1])


def part_within(tile: PixelGrid, wanted: PixelGrid) -> "Window | None":
    """Returns the pixels of a tile that lie in another grid, with which it is aligned; None if there are none."""
    from rasterio.windows import Window

    left, top = tile.offset_of(wanted)
    right, bottom = min(left + wanted.width, tile.width), min(top + wanted.height, tile.height)
    left, top = max(left, 0), max(top, 0)
    return Window(left, top, right - left, bottom - top) if left < right and top < bottom else None


def _in_words(grid: PixelGrid) -> str:
    return f"{describe(grid)} in {grid.code or 'a system without a code'}"
