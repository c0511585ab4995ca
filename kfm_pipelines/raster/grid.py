"""The grid of a raster: its reference system, origin, pixel size and shape; and which part of it an area covers."""

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.rasters import Grid
from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    import numpy as np
    from affine import Affine
    from numpy.typing import NDArray
    from rasterio.crs import CRS
    from rasterio.io import DatasetReader
    from rasterio.windows import Window
    from shapely.geometry.base import BaseGeometry

LONGITUDE_LATITUDE = "EPSG:4326"
TOLERANCE = 0.01  # of a pixel, by which a corner may differ: GRIB rounds its coordinates
DECIMALS = 9  # of origins: far less than a pixel, and the same from wherever they are counted
EDGE_STEPS = 64  # into which each side of a raster is divided before it is projected
STEP_DEGREES = 0.05  # edges of a shape are divided before they are projected, because they do not stay straight
# Weather services name no datum: their longitudes and latitudes are read as those of WGS 84.
_UNNAMED = re.compile(r'DATUM\["(unnamed|unknown|not[ _]specified)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PixelGrid:
    """Rows run from north to south and columns from west to east."""

    crs: "CRS"
    transform: "Affine"
    width: int
    height: int

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Returns west, south, east and north in units of the reference system."""
        west, north = self.transform.c, self.transform.f
        return (west, north + self.height * self.transform.e, west + self.width * self.transform.a, north)

    @property
    def code(self) -> str | None:
        number = self.crs.to_epsg()
        return f"EPSG:{number}" if number else None

    def agrees_with(self, other: "PixelGrid") -> bool:
        """Whether both have the same pixels, but for rounding."""
        if (self.crs, self.width, self.height) != (other.crs, other.width, other.height):
            return False
        pairs = zip(self.bounds, other.bounds, strict=True)
        return all(abs(one - two) <= TOLERANCE * self.transform.a for one, two in pairs)

    def offset_of(self, other: "PixelGrid") -> tuple[int, int]:
        """Returns how many columns east and rows south of this grid another begins, to the nearest pixel."""
        here, there = self.transform, other.transform
        return round((there.c - here.c) / here.a), round((there.f - here.f) / here.e)

    def is_aligned_with(self, other: "PixelGrid") -> bool:
        """Whether the pixels of another grid would coincide, but for rounding, with those of this one continued."""
        if self.crs != other.crs:
            return False
        (left, top), here = self.offset_of(other), self.transform
        expected = (
            here.c + left * here.a,
            here.f + (top + other.height) * here.e,
            here.c + (left + other.width) * here.a,
            here.f + top * here.e,
        )
        pairs = zip(expected, other.bounds, strict=True)
        return all(abs(one - two) <= TOLERANCE * here.a for one, two in pairs)

    def cut(self, window: "Window") -> "PixelGrid":
        from affine import Affine

        across, down = self.transform.a, self.transform.e
        west = round(self.transform.c + window.col_off * across, DECIMALS)
        north = round(self.transform.f + window.row_off * down, DECIMALS)
        moved = Affine(across, 0.0, west, 0.0, down, north)
        return replace(self, transform=moved, width=int(window.width), height=int(window.height))


@dataclass(frozen=True, slots=True)
class Pixels:
    """Values of each band, row and column as 32-bit floats; NaN where there is none."""

    grid: PixelGrid
    values: "NDArray[np.float32]"


def grid_of(dataset: "DatasetReader", name: str) -> PixelGrid:
    """Raises InputUnreadable unless the raster says where on the earth its pixels are."""
    if dataset.crs is None:
        raise InputUnreadable(f"{name} has no reference system; it must name one, because it is not guessed")
    transform = dataset.transform
    if transform.is_identity:
        raise InputUnreadable(f"{name} has no origin and pixel size; it must have a geotransform")
    if not all(map(math.isfinite, transform)):
        raise InputUnreadable(f"{name} has an origin or a pixel size that is not a number")
    if transform.b or transform.d or transform.a <= 0 or transform.e >= 0:
        raise InputUnreadable(f"{name} has a rotated or mirrored grid; rows must run from north to south")
    return PixelGrid(_named_system(dataset.crs), transform, dataset.width, dataset.height)


def declared_grid(grid: Grid) -> PixelGrid:
    from affine import Affine
    from rasterio.crs import CRS

    transform = Affine(grid.pixel_width, 0.0, grid.west, 0.0, -grid.pixel_height, grid.north)
    return PixelGrid(CRS.from_string(grid.crs), transform, grid.columns, grid.rows)


def adopt_declared(found: PixelGrid, declared: Grid | None, name: str) -> PixelGrid:
    """Returns the declared grid, which a file may have rounded. Raises InputUnreadable if the file has another."""
    if declared is None:
        return found
    wanted = declared_grid(declared)
    if found.crs != wanted.crs:
        raise InputUnreadable(f"{name} is in {found.code or 'another system'}, and raster.grid declares {declared.crs}")
    if not found.agrees_with(wanted):
        raise InputUnreadable(f"{name} has the grid {describe(found)}, and raster.grid declares {describe(wanted)}")
    return wanted


def beside(grid: PixelGrid, area: Area) -> PixelGrid:
    """Returns the grid, moved by 360 degrees if its longitudes are counted from 0 to 360 and the area's are not."""
    if not grid.crs.is_geographic:
        return grid
    from affine import Affine

    west, _, east, _ = area.shape.bounds

    def overlap(turn: int) -> float:
        left, _, right, _ = grid.bounds
        return float(min(east, right + turn) - max(west, left + turn))

    turn, old = max((0, -360, 360), key=overlap), grid.transform
    moved = Affine(old.a, 0.0, round(old.c + turn, DECIMALS), 0.0, old.e, old.f)
    return replace(grid, transform=moved) if turn else grid


def window_of(grid: PixelGrid, area: Area, name: str) -> "Window":
    """Returns the pixels that the box of the area touches. Raises InputUnreadable if there are none."""
    import numpy as np
    from rasterio.windows import Window

    shape = project(area, grid)
    if shape.is_empty:
        raise InputUnreadable(f"{name} lies outside the area {area.name}")
    west, south, east, north = shape.bounds
    columns = np.array([west - grid.transform.c, east - grid.transform.c]) / grid.transform.a
    rows = np.array([north - grid.transform.f, south - grid.transform.f]) / grid.transform.e
    left, right = _whole(columns, grid.width)
    top, bottom = _whole(rows, grid.height)
    if left >= right or top >= bottom:
        raise InputUnreadable(f"{name} lies outside the area {area.name}")
    return Window(left, top, right - left, bottom - top)


def outside(grid: PixelGrid, area: Area) -> "NDArray[np.bool_]":
    """Marks the pixels whose centres lie outside the area."""
    from rasterio.features import geometry_mask

    shape = project(area, grid)
    marked: NDArray[np.bool_] = geometry_mask([shape.__geo_interface__], (grid.height, grid.width), grid.transform)
    return marked


def project(area: Area, grid: PixelGrid) -> "BaseGeometry":
    """Returns the part of the area around a raster, in its reference system: what is far away may not be projected."""
    import shapely

    if is_plain(grid.crs):
        return area.shape
    around = shapely.Polygon(outline(grid))
    margin = max(around.bounds[2] - around.bounds[0], around.bounds[3] - around.bounds[1]) / EDGE_STEPS
    near = shapely.intersection(area.shape, around.buffer(margin))
    divided = shapely.segmentize(near, STEP_DEGREES)
    return shapely.transform(divided, lambda points: project_points(points, LONGITUDE_LATITUDE, grid.crs))


def outline(grid: PixelGrid) -> "NDArray[np.float64]":
    """Returns the edge of the raster in degrees."""
    import numpy as np

    west, south, east, north = grid.bounds
    shares = np.arange(EDGE_STEPS) / EDGE_STEPS
    across, down = west + shares * (east - west), north + shares * (south - north)
    corners = np.concatenate([across, np.full(EDGE_STEPS, east), west + east - across, np.full(EDGE_STEPS, west)])
    heights = np.concatenate([np.full(EDGE_STEPS, north), down, np.full(EDGE_STEPS, south), north + south - down])
    points = np.column_stack([corners, heights])
    return points if is_plain(grid.crs) else project_points(points, grid.crs, LONGITUDE_LATITUDE)


def is_plain(crs: "CRS") -> bool:
    """Whether coordinates are longitudes and latitudes of WGS 84."""
    return bool(crs.to_epsg() == 4326)


def project_points(points: "NDArray[np.float64]", source: Any, target: Any) -> "NDArray[np.float64]":
    """Projects rows of east and north; infinity where that is impossible."""
    import numpy as np
    from rasterio.warp import transform

    east, north = transform(source, target, points[:, 0], points[:, 1])
    return np.column_stack([east, north])


def _whole(edges: "NDArray[np.float64]", limit: int) -> tuple[int, int]:
    import numpy as np

    near = np.round(edges, 6)  # an edge of the area on an edge of pixels does not take in the next ones
    return int(np.clip(np.floor(near[0]), 0, limit)), int(np.clip(np.ceil(near[1]), 0, limit))


def _named_system(crs: "CRS") -> "CRS":
    from rasterio.crs import CRS

    text = crs.to_wkt()
    unnamed = crs.is_geographic and _UNNAMED.search(text) and 'PRIMEM["Greenwich"' in text and 'UNIT["degree"' in text
    return CRS.from_epsg(4326) if unnamed else crs


def describe(grid: PixelGrid) -> str:
    transform = grid.transform
    size = f"{grid.width} × {grid.height} pixels of {transform.a:.9g} × {-transform.e:.9g}"
    return f"{size} from {transform.c:.9g}, {transform.f:.9g}"
