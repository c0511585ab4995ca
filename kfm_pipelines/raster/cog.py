"""Writes and reads Cloud-Optimised GeoTIFFs: tiles, overviews, 32-bit floats.

The bytes depend on the pixels and the declaration alone. GDAL gets one thread and every option, so that neither the
environment nor the size of its cache changes them; the file has no times and no names of machines.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.raster.grid import PixelGrid, Pixels, grid_of
from kfm_pipelines.raster.open import GDAL_OPTIONS, open_raster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OPTIONS: dict[str, Any] = {
    "driver": "COG",
    "dtype": "float32",
    "blocksize": 512,
    "compress": "DEFLATE",
    "level": 6,
    "predictor": "YES",
    "overviews": "IGNORE_EXISTING",
    "overview_resampling": "AVERAGE",  # of the pixels with a value
    "bigtiff": "IF_SAFER",
    "geotiff_version": "1.1",
    "statistics": "NO",
    "num_threads": "1",
}


def write_cog(pixels: Pixels, bands: Sequence[Band], nodata: float) -> bytes:
    """Names each band, with its unit and description, in the file."""
    import numpy as np
    import rasterio
    from rasterio.io import MemoryFile

    grid, count = pixels.grid, len(bands)
    shape = {"crs": grid.crs, "transform": grid.transform, "width": grid.width, "height": grid.height}
    with rasterio.Env(**GDAL_OPTIONS, GDAL_NUM_THREADS="1"), MemoryFile() as file:
        with file.open(**OPTIONS, **shape, count=count, nodata=nodata) as out:
            for number, (band, values) in enumerate(zip(bands, pixels.values, strict=True), start=1):
                out.write(np.where(np.isnan(values), np.float32(nodata), values), number)
                out.set_band_description(number, band.name)
                out.set_band_unit(number, band.unit)
        return bytes(file.read())


def read_cog(data: bytes, name: str) -> Pixels:
    """Returns the pixels of a GeoTIFF that `write_cog` made."""
    import numpy as np

    with open_raster(data, name, "GTiff") as dataset:
        values = dataset.read(out_dtype=np.float32)
        values[values == np.float32(dataset.nodata)] = np.nan
        found = grid_of(dataset, name)
    return Pixels(found, values)


def projection_of(grid: PixelGrid) -> dict[str, Any]:
    """Returns the fields of STAC's projection extension."""
    code = grid.code
    return {
        "proj:code": code,
        **({} if code else {"proj:wkt2": grid.crs.to_wkt(version="WKT2_2019")}),
        "proj:shape": [grid.height, grid.width],
        "proj:transform": list(grid.transform)[:6],
        "proj:bbox": list(grid.bounds),
    }


def row_areas(grid: PixelGrid) -> "NDArray[np.float64]":
    """Returns the area of a pixel in each row: in square metres on the ellipsoid for longitudes and latitudes, in
    squared units of the reference system for others."""
    import numpy as np

    edges = grid.transform.f + np.arange(grid.height + 1) * grid.transform.e
    if not grid.crs.is_geographic:
        return np.full(grid.height, grid.transform.a * -grid.transform.e)
    strips = -np.diff(_area_from_equator(np.radians(np.clip(edges, -90.0, 90.0))))
    areas: NDArray[np.float64] = strips * np.radians(grid.transform.a)
    return areas


def _area_from_equator(latitudes: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Returns the area between the equator and each latitude, per radian of longitude, on WGS 84."""
    import numpy as np

    axis, flattening = 6_378_137.0, 1 / 298.257223563
    squared = flattening * (2 - flattening)
    eccentricity, sine = np.sqrt(squared), np.sin(latitudes)
    part = sine / (1 - squared * sine**2) + np.arctanh(eccentricity * sine) / eccentricity
    areas: NDArray[np.float64] = axis**2 * (1 - squared) / 2 * part
    return areas
