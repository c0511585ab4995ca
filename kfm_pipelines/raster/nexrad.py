"""Reads NEXRAD Level III: radials around a radar, put on a grid. Each pixel takes the gate that its centre lies in."""

import bz2
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.inputs import Limits
from kfm_pipelines.declarations.rasters import Band, Grid, Raster
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.bands import is_sentinel, measured
from kfm_pipelines.raster.grid import LONGITUDE_LATITUDE, PixelGrid, declared_grid, is_plain, project_points

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rasterio.windows import Window

PIXEL_DEGREES = 0.01
METRES_PER_DEGREE = 111_000.0
ROWS_AT_ONCE = 500
# What Python's own modules and the library raise on a file that is not what it says.
_DAMAGE = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError, OverflowError, AssertionError,
    NotImplementedError, struct.error, zlib.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RadarSweep:
    """One layer of radials: `values` has a row for each, in order of their directions."""

    longitude: float
    latitude: float
    directions: "NDArray[np.float64]"  # of the middle of each radial, in degrees from north
    width: float  # of a radial
    first_gate: float  # distance of its near edge, in metres
    gate: float  # length of a gate
    values: "NDArray[np.float64]"
    product: str = ""  # its name
    unit: str | None = None

    @property
    def reach(self) -> float:
        return float(self.first_gate + self.gate * self.values.shape[1])


def level3_grid(data: bytes, name: str, raster: Raster, limits: Limits) -> PixelGrid:
    """Returns the declared grid, or the one around the radar."""
    if raster.grid is not None:
        return declared_grid(raster.grid)
    return grid_around(read_sweep(data, name, raster.bands[0], limits))


def read_level3(
    data: bytes, name: str, raster: Raster, limits: Limits, choose: "Callable[[PixelGrid], Window]"
) -> "tuple[PixelGrid, PixelGrid, NDArray[np.float32]]":
    """Returns the whole grid, the chosen part of it, and the values there."""
    import numpy as np

    sweeps = [read_sweep(data, name, band, limits) for band in raster.bands]
    whole = grid_around(sweeps[0]) if raster.grid is None else declared_grid(raster.grid)
    limits.refuse(name, pixels=whole.width * whole.height)
    grid = whole.cut(choose(whole))
    limits.refuse(name, pixels=grid.width * grid.height * len(sweeps))
    values = np.stack([_on_grid(one, band, grid, name) for one, band in zip(sweeps, raster.bands, strict=True)])
    return whole, grid, values


def read_sweep(data: bytes, name: str, band: Band, limits: Limits) -> RadarSweep:
    """Raises InputUnreadable unless the file has such a layer of radials."""
    _refuse_bomb(data, name, limits)
    try:
        return _sweep_of(data, band)
    except _DAMAGE:
        raise InputUnreadable(
            f"{name} is not readable as NEXRAD Level III with layer {band.source} of radials: it is another product, "
            "cut or damaged"
        ) from None


def _sweep_of(data: bytes, band: Band) -> RadarSweep:
    import numpy as np
    from metpy.io import Level3File

    file = Level3File(BytesIO(data))
    layers = [one for layer in file.sym_block for one in layer if isinstance(one, dict) and "start_az" in one]
    layer = layers[int(band.source) - 1] if int(band.source) >= 1 else {}
    start, end = np.array(layer["start_az"]), np.array(layer["end_az"])
    values = np.asarray(file.map_data(_rectangle(layer["data"])), np.float64)
    gate = file.max_range * 1000.0 / values.shape[1]  # the header's scale is that of the beam's shadow, rounded
    middle = np.mod((start + end) / 2, 360.0)
    order = np.argsort(middle, kind="stable")
    if not (math.isfinite(file.lon) and math.isfinite(file.lat) and abs(file.lat) <= 90 and abs(file.lon) <= 180):
        raise ValueError("no place of the radar")
    width = float(np.median(end - start))
    unit = getattr(file.map_data, "units", None)
    place = file.lon, file.lat, middle[order], width, layer["first"] * gate, gate, values[order]
    return RadarSweep(*place, product=file.product_name, unit=unit)


def _rectangle(radials: list[Any]) -> "NDArray[np.uint8]":
    """Makes radials equally long; what is missing has the level that means nothing was measured."""
    import numpy as np

    rows = [np.frombuffer(bytes(one), np.uint8) for one in radials]
    levels = np.zeros((len(rows), max(map(len, rows))), np.uint8)
    for level, row in zip(levels, rows, strict=True):
        level[: len(row)] = row
    return levels


def grid_around(sweep: RadarSweep) -> PixelGrid:
    """Returns a grid of hundredths of a degree around the radar, on whole hundredths, so that radars share pixels."""
    north_south = sweep.reach / METRES_PER_DEGREE
    east_west = north_south / math.cos(math.radians(abs(sweep.latitude) + north_south))
    west, east = (math.floor((sweep.longitude + side * east_west) / PIXEL_DEGREES) for side in (-1, 1))
    south, north = (math.floor((sweep.latitude + side * north_south) / PIXEL_DEGREES) for side in (-1, 1))
    return declared_grid(
        Grid(
            crs=LONGITUDE_LATITUDE,
            west=west * PIXEL_DEGREES,
            north=(north + 1) * PIXEL_DEGREES,
            pixel_width=PIXEL_DEGREES,
            pixel_height=PIXEL_DEGREES,
            columns=east + 1 - west,
            rows=north + 1 - south,
        )
    )


def _on_grid(sweep: RadarSweep, band: Band, grid: PixelGrid, name: str) -> "NDArray[np.float32]":
    import numpy as np

    raw = np.empty((grid.height, grid.width))
    for top in range(0, grid.height, ROWS_AT_ONCE):
        rows = np.arange(top, min(top + ROWS_AT_ONCE, grid.height))
        raw[rows] = _gates_at(sweep, _centres(grid, rows)).reshape(len(rows), grid.width)
    return measured(raw, is_sentinel(raw, band.sentinels), band, name)


def _centres(grid: PixelGrid, rows: "NDArray[np.int64]") -> "NDArray[np.float64]":
    """Returns longitude and latitude of the middle of each pixel of these rows."""
    import numpy as np

    east = grid.transform.c + (np.arange(grid.width) + 0.5) * grid.transform.a
    north = grid.transform.f + (rows + 0.5) * grid.transform.e
    points = np.column_stack([np.tile(east, len(rows)), np.repeat(north, grid.width)])
    return points if is_plain(grid.crs) else project_points(points, grid.crs, LONGITUDE_LATITUDE)


def _gates_at(sweep: RadarSweep, points: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Returns the value of the gate that each point lies in; NaN beyond the last one and between radials."""
    import numpy as np
    from pyproj import Geod

    here = np.full(len(points), sweep.longitude), np.full(len(points), sweep.latitude)
    azimuth, _, distance = Geod(ellps="WGS84").inv(*here, points[:, 0], points[:, 1])
    azimuth, count = np.mod(azimuth, 360.0), len(sweep.directions)
    above = np.searchsorted(sweep.directions, azimuth)
    radials = np.stack([(above - 1) % count, above % count])
    apart = np.abs(np.mod(azimuth - sweep.directions[radials] + 180.0, 360.0) - 180.0)
    nearest = np.argmin(apart, axis=0)
    each = np.arange(len(points))
    gate = np.floor((distance - sweep.first_gate) / sweep.gate)
    hit = (gate >= 0) & (gate < sweep.values.shape[1]) & (apart[nearest, each] <= sweep.width)
    values = np.full(len(points), np.nan)
    values[hit] = sweep.values[radials[nearest, each][hit], gate[hit].astype(np.int64)]
    return values


def _refuse_bomb(data: bytes, name: str, limits: Limits) -> None:
    """Unpacks the products that are packed within the file, only so far as is allowed."""
    start = data.find(b"BZh")
    if start < 0:
        return
    try:
        unpacked = bz2.BZ2Decompressor().decompress(data[start:], limits.unpacked_bytes + 1)
    except OSError:
        return  # not packed, or damaged, which the reader reports
    limits.refuse(name, unpacked_bytes=len(unpacked))
