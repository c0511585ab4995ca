"""Reads the part of a raster that an area covers: the declared bands, in the declared grid, clipped to the area."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.inputs import Input, Limits
from kfm_pipelines.declarations.rasters import Raster
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.bands import BandSource, read_bands, refuse_nodata_among, refuse_too_large, same_grid
from kfm_pipelines.raster.formats import FORMATS, refuse_cut_geotiff
from kfm_pipelines.raster.grid import PixelGrid, Pixels, adopt_declared, beside, grid_of, outside, window_of
from kfm_pipelines.raster.mosaic import part_within
from kfm_pipelines.raster.nexrad import level3_grid, read_level3

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rasterio.windows import Window

    ChooseWindow = Callable[[PixelGrid], Window]

GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class SourceRaster:
    """What was read of an object, and the grid that the object has as a whole."""

    whole: PixelGrid
    clipped: Pixels


def read_raster(data: bytes, name: str, raster: Raster, source: Input, area: Area) -> SourceRaster:
    """Raises InputUnreadable for an object that cannot be read, is too large, or lies elsewhere."""
    whole, part, values = _read(data, name, raster, source, area, lambda grid: window_of(grid, area, name))
    return SourceRaster(whole, clip(Pixels(part, values), area))


def read_grid(data: bytes, name: str, raster: Raster, source: Input, area: Area) -> PixelGrid:
    """Returns the grid that the object has as a whole, without reading its pixels."""
    data = unpack_gzip(data, name, source.limits)
    if source.format_of(name) == "nexrad-level3":
        return level3_grid(data, name, raster, source.limits)
    with _open_bands(data, name, raster, source, area) as (_, whole):
        return whole


def read_tile(data: bytes, name: str, raster: Raster, source: Input, area: Area, wanted: PixelGrid) -> Pixels:
    """Reads the part of a tile that lies in a grid with which it is aligned. It is not clipped to the area yet: the
    edge of a projected area depends a little on the grid, and should not differ from tile to tile."""

    def part_of(tile: PixelGrid) -> "Window":
        if (window := part_within(tile, wanted)) is None:
            raise InputUnreadable(f"{name} lies outside the area {area.name}")
        return window

    _, part, values = _read(data, name, raster, source, area, part_of)
    return Pixels(part, values)


def unpack_gzip(data: bytes, name: str, limits: Limits) -> bytes:
    """Returns what is in a gzip file, as which NOAA stores its mosaics; other data as it is."""
    if not data.startswith(GZIP):
        return data
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacker.decompress(data, limits.unpacked_bytes + 1)
    except zlib.error:
        raise InputUnreadable(f"{name} is not readable as gzip: it is damaged") from None
    limits.refuse(name, unpacked_bytes=len(unpacked))
    if not unpacker.eof:
        raise InputUnreadable(f"{name} is not readable as gzip: it is cut")
    return unpacked


def clip(pixels: Pixels, area: Area) -> Pixels:
    """Takes away the values of pixels whose centres lie outside the area."""
    import numpy as np

    pixels.values[:, outside(pixels.grid, area)] = np.nan
    return pixels


def _read(
    data: bytes, name: str, raster: Raster, source: Input, area: Area, choose: "ChooseWindow"
) -> "tuple[PixelGrid, PixelGrid, NDArray[np.float32]]":
    """Returns the whole grid, the chosen part of it, and the values there."""
    data = unpack_gzip(data, name, source.limits)
    if source.format_of(name) == "nexrad-level3":
        whole, part, values = read_level3(data, name, raster, source.limits, choose)
    else:
        with _open_bands(data, name, raster, source, area) as (bands, whole):
            window = choose(whole)
            part, values = whole.cut(window), read_bands(bands, window, source.limits, name)
    refuse_nodata_among(values, raster.nodata, name)
    return whole, part, values


@contextmanager
def _open_bands(
    data: bytes, name: str, raster: Raster, source: Input, area: Area
) -> Iterator[tuple[Sequence[BandSource], PixelGrid]]:
    kind = source.format_of(name)
    with FORMATS[kind](data, name, raster.bands) as bands:
        refuse_too_large(bands, source.limits, name)
        if kind == "geotiff":
            refuse_cut_geotiff(bands, len(data), name)
        found = same_grid([grid_of(one.dataset, name) for one in bands], name)
        yield bands, beside(adopt_declared(found, raster.grid, name), area)
