"""Assembles what is published of a raster from its pixels: the Cloud-Optimised GeoTIFF, a picture, and a table of H3
cells or, without a resolution, of statistics.

Everything is made of these pixels alone, so whoever changes them, such as a mask, assembles again.
"""

from typing import TYPE_CHECKING

from kfm_pipelines.data_files import COG_TYPE, PNG_TYPE, Attachments, DataFile
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.rasters import MEASURES, Raster
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.parquet.geoparquet import points_of
from kfm_pipelines.raster.cells import cell_statistics
from kfm_pipelines.raster.cog import projection_of, write_cog
from kfm_pipelines.raster.grid import Pixels
from kfm_pipelines.raster.open import box_of_raster
from kfm_pipelines.raster.picture import draw_picture
from kfm_pipelines.raster.statistics import band_fields, statistics_of
from kfm_pipelines.stages.compute.result import Computed

if TYPE_CHECKING:
    import pyarrow as pa

RASTER, THUMBNAIL = "raster", "thumbnail"


def assemble(pixels: Pixels, dataset: Dataset) -> Computed:
    if dataset.raster is None:
        raise DeclarationInvalid(f"{dataset.dataset}: needs a section raster")
    files = raster_files(pixels, dataset.raster, dataset.title)
    return Computed(raster_table(pixels, dataset.raster, dataset), Attachments(files))


def raster_files(pixels: Pixels, raster: Raster, title: str) -> tuple[DataFile, DataFile]:
    """Returns the raster and its picture."""
    data = write_cog(pixels, raster.bands, raster.nodata)
    properties = {**projection_of(pixels.grid), "bands": band_fields(raster.bands, raster.nodata, pixels)}
    box = box_of_raster(data, RASTER)
    picture = draw_picture(pixels, raster)
    return (
        DataFile(RASTER, ".tif", COG_TYPE, title, ("data",), data, properties, box),
        DataFile(THUMBNAIL, ".png", PNG_TYPE, f"{title}: picture", ("thumbnail",), picture),
    )


def raster_table(pixels: Pixels, raster: Raster, dataset: Dataset) -> "pa.Table":
    """Returns the table that follows from the declaration: H3 cells, or the statistics of each band."""
    make = _statistics_table if dataset.key.h3_res == "none" else _cells_table
    return make(pixels, raster, dataset)


def _cells_table(pixels: Pixels, raster: Raster, dataset: Dataset) -> "pa.Table":
    import pyarrow as pa

    found = cell_statistics(pixels, int(dataset.key.h3_res))
    columns = {
        "h3_cell": pa.array(found.cells, pa.string()),
        "longitude": pa.array(found.longitudes),
        "latitude": pa.array(found.latitudes),
    }
    for band, numbers in zip(raster.bands, found.measures, strict=True):
        columns |= {f"{band.name}_{one}": pa.array(numbers[one], pa.float64(), from_pandas=True) for one in MEASURES}
    columns["geometry"] = points_of(pa.chunked_array([columns["longitude"]]), pa.chunked_array([columns["latitude"]]))
    return pa.table(columns, schema=declared_schema(dataset.table))


def _statistics_table(pixels: Pixels, raster: Raster, dataset: Dataset) -> "pa.Table":
    import pyarrow as pa

    rows = [
        {
            "band": band.name,
            "unit": band.unit,
            "valid_pixels": found.valid_pixels,
            "nodata_pixels": found.nodata_pixels,
            "min": found.min,
            "max": found.max,
            "mean": found.mean,
            "stddev": found.stddev,
        }
        for band, found in zip(raster.bands, statistics_of(pixels), strict=True)
    ]
    rows.sort(key=lambda row: str(row["band"]))
    return pa.Table.from_pylist(rows, schema=declared_schema(dataset.table))
