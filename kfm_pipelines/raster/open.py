"""Opens rasters from bytes in memory. GDAL sees nothing but these bytes: no network, no files beside them, and only the
drivers for the declared format."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.identity import BBox
from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    from rasterio.io import DatasetReader, MemoryFile

# Nothing beside the bytes is looked for or written, nothing is fetched, and values stay in the unit of the file.
GDAL_OPTIONS = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # TRUE would try each name instead of listing the folder
    "GDAL_PAM_ENABLED": "NO",
    "CPL_VSIL_CURL_ALLOWED_FILENAME": "none",  # the only address that may be fetched is none at all
    "GRIB_NORMALIZE_UNITS": "NO",
}
_FORMATS = {"GTiff": "GeoTIFF", "GRIB": "GRIB2", "netCDF": "NetCDF"}


@contextmanager
def open_memory(data: bytes, name: str, *drivers: str) -> "Iterator[MemoryFile]":
    """Gives GDAL these bytes as a file. Raises InputUnreadable for whatever it then cannot read of it."""
    import rasterio
    from rasterio._err import CPLE_BaseError
    from rasterio.errors import NotGeoreferencedWarning, RasterioError, RasterioIOError
    from rasterio.io import MemoryFile

    if not data:
        raise InputUnreadable(f"{name} is empty")
    with rasterio.Env(**GDAL_OPTIONS), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # what has no place is refused
        try:
            with MemoryFile(data) as file:
                yield file
        except (RasterioError, RasterioIOError, CPLE_BaseError):
            formats = " or ".join(_FORMATS.get(driver, driver) for driver in drivers)
            raise InputUnreadable(f"{name} is not readable as {formats}: it is another format, cut or bad") from None


@contextmanager
def open_raster(data: bytes, name: str, *drivers: str) -> "Iterator[DatasetReader]":
    """Raises InputUnreadable if none of the drivers can open it, or if it names another file."""
    with open_memory(data, name, *drivers) as file, file.open(driver=list(drivers)) as dataset:
        if dataset.tags(ns="OVERVIEWS"):  # GDAL would open what is named there when it is asked for overviews
            raise InputUnreadable(f"{name} has its overviews in another file; put them into the file itself")
        yield dataset


def box_of_raster(data: bytes, name: str) -> BBox:
    """Returns the box of a GeoTIFF in degrees."""
    from rasterio.warp import transform_bounds

    with open_raster(data, name, "GTiff") as dataset:
        west, south, east, north = transform_bounds(dataset.crs, "EPSG:4326", *dataset.bounds)
    return (west, south, east, north)
