"""H3 cells of a raster: how many pixels each has, and their mean, least, largest value and sum.

Pixels on the edge of a cell count by the share of them that lies in it, computed exactly from the outlines, which are
projected into the reference system of the raster.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.rasters import MEASURES, Measure
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.cog import row_areas
from kfm_pipelines.raster.grid import LONGITUDE_LATITUDE, PixelGrid, Pixels, is_plain, outline, project_points

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

MAX_CELLS = 5_000_000
PRECISION_BITS = 24  # of a 32-bit float
_OPERATIONS: dict[Measure, str] = {
    "count": "count", "mean": "weighted_mean", "min": "min", "max": "max", "sum": "sum",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CellStatistics:
    """Cells in ascending order, at least a part of which has values. `measures` are those of each band."""

    cells: list[str]
    longitudes: "Numbers"
    latitudes: "Numbers"
    measures: "tuple[dict[Measure, Numbers], ...]"


def cell_statistics(pixels: Pixels, resolution: int) -> CellStatistics:
    import h3
    import numpy as np

    smaller = _around_values(pixels)
    if smaller is None:
        nothing = np.empty(0)
        return CellStatistics([], nothing, nothing, tuple(dict.fromkeys(MEASURES, nothing) for _ in pixels.values))
    cells = sorted(_cells_over(smaller.grid, resolution))
    measures = _measure(smaller, cells)
    counted = np.stack([one["count"] for one in measures]).max(axis=0) > 0
    kept = [cell for cell, has in zip(cells, counted, strict=True) if has]
    centres = np.array([h3.cell_to_latlng(cell) for cell in kept])
    chosen = tuple({name: numbers[counted] for name, numbers in one.items()} for one in measures)
    return CellStatistics(kept, centres[:, 1], centres[:, 0], chosen)


def _around_values(pixels: Pixels) -> Pixels | None:
    """Returns the smallest part that has all values; None if there are none."""
    import numpy as np
    from rasterio.windows import Window

    there: NDArray[np.bool_] = ~np.all(np.isnan(pixels.values), axis=0)
    rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
    if not len(rows):
        return None
    top, bottom, left, right = int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1
    window = Window(left, top, right - left, bottom - top)
    return Pixels(pixels.grid.cut(window), pixels.values[:, top:bottom, left:right])


def _cells_over(grid: PixelGrid, resolution: int) -> list[str]:
    """Returns every cell that shares some of its area with the raster."""
    import h3

    per_cell = h3.average_hexagon_area(resolution, unit="m^2")
    square_metres = float(row_areas(grid).sum()) * grid.width
    if not grid.crs.is_geographic:
        square_metres *= float(grid.crs.linear_units_factor[1]) ** 2
    if square_metres / per_cell > MAX_CELLS:
        count = int(square_metres / per_cell)
        raise InputUnreadable(f"the raster covers about {count} cells of resolution {resolution}; choose a coarser one")
    polygon = h3.LatLngPoly([(north, east) for east, north in outline(grid)])
    found: list[str] = h3.h3shape_to_cells_experimental(polygon, resolution, contain="overlap")
    return found


def _measure(pixels: Pixels, cells: list[str]) -> "list[dict[Measure, Numbers]]":
    import numpy as np
    from exactextract import Operation, exact_extract
    from exactextract.raster import NumPyRasterSource

    grid = pixels.grid
    weights = NumPyRasterSource(np.repeat(row_areas(grid)[:, None], grid.width, axis=1), *grid.bounds, name="area")
    rasters = [  # of two without a name, the first would be used for both
        NumPyRasterSource(values, *grid.bounds, nodata=np.nan, name=f"band {place}")
        for place, values in enumerate(pixels.values)
    ]
    operations = [
        Operation(_OPERATIONS[measure], f"{measure} {place}", raster, weights)
        for place, raster in enumerate(rasters)
        for measure in MEASURES
    ]
    found = exact_extract(rasters, list(_features(cells, grid)), operations)
    return [_numbers(found, place) for place in range(len(rasters))]


def _features(cells: list[str], grid: PixelGrid) -> Iterator[dict[str, Any]]:
    """Yields the outline of each cell in the reference system of the raster."""
    import h3
    import numpy as np

    rings = [[(east, north) for north, east in h3.cell_to_boundary(cell)] for cell in cells]
    ends = np.cumsum([len(ring) for ring in rings])
    points = np.array([point for ring in rings for point in ring])
    if not is_plain(grid.crs):
        points = project_points(points, LONGITUDE_LATITUDE, grid.crs)
    for ring in np.split(points, ends[:-1]):
        closed = [*ring.tolist(), ring[0].tolist()]
        yield {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [closed]}}


def _numbers(found: list[Any], place: int) -> "dict[Measure, Numbers]":
    """Returns each measure for all cells; NaN where a cell has no value."""
    import numpy as np

    rows = [one["properties"] for one in found]
    counts = _rounded([row[f"count {place}"] for row in rows])
    numbers: dict[Measure, Numbers] = {"count": counts}
    for measure in MEASURES[1:]:
        values = _rounded([row[f"{measure} {place}"] for row in rows])
        numbers[measure] = np.where(counts > 0, values, np.nan)
    # Weights may put the mean of equal values a last digit away from them.
    numbers["mean"] = np.clip(numbers["mean"], numbers["min"], numbers["max"])
    return numbers


def _rounded(numbers: list[float]) -> "Numbers":
    """Rounds to the precision of 32-bit floats, by operations that are exact everywhere. Processors differ in the last
    digits of a sine, on which outlines and areas depend, and a pixel has no more digits either."""
    import numpy as np

    fractions, exponents = np.frexp(np.array(numbers, np.float64))
    rounded: Numbers = np.ldexp(np.round(np.ldexp(fractions, PRECISION_BITS)), exponents - PRECISION_BITS)
    return rounded
