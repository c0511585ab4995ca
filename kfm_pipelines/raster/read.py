"""Reads the part of a raster that an area covers: the declared bands, in the declared grid, clipped to the area."""

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.inputs import Input, Limits
from kfm_pipelines.declarations.rasters import Raster
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.bands import read_bands, refuse_nodata_among, refuse_too_large, same_grid
from kfm_pipelines.raster.formats import FORMATS, refuse_cut_geotiff
from kfm_pipelines.raster.grid import PixelGrid, Pixels, adopt_declared, beside, grid_of, outside, window_of
from kfm_pipelines.raster.nexrad import read_level3

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class SourceRaster:
    """What was read of an object, and the grid that the object has as a whole."""

    whole: PixelGrid
    clipped: Pixels


def read_raster(data: bytes, name: str, raster: Raster, source: Input, area: Area) -> SourceRaster:
    """Raises InputUnreadable for an object that cannot be read, is too large, or lies elsewhere."""
    data = unpack_gzip(data, name, source.limits)
    if source.format_of(name) == "nexrad-level3":
        whole, clipped, values = read_level3(data, name, raster, source.limits, area)
    else:
        whole, clipped, values = _read_with_gdal(data, name, raster, source, area)
    refuse_nodata_among(values, raster.nodata, name)
    return SourceRaster(whole, clip(clipped, values, area))


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


def clip(grid: PixelGrid, values: "NDArray[np.float32]", area: Area) -> Pixels:
    """Takes away the values of pixels whose centres lie outside the area."""
    import numpy as np

    values[:, outside(grid, area)] = np.nan
    return Pixels(grid, values)


def _read_with_gdal(
    data: bytes, name: str, raster: Raster, source: Input, area: Area
) -> "tuple[PixelGrid, PixelGrid, NDArray[np.float32]]":
    kind = source.format_of(name)
    with FORMATS[kind](data, name, raster.bands) as bands:
        refuse_too_large(bands, source.limits, name)
        if kind == "geotiff":
            refuse_cut_geotiff(bands, len(data), name)
        found = same_grid([grid_of(one.dataset, name) for one in bands], name)
        whole = beside(adopt_declared(found, raster.grid, name), area)
        window = window_of(whole, area, name)
        return whole, whole.cut(window), read_bands(bands, window, source.limits, name)
