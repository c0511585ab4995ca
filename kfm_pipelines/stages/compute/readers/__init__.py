"""Readers of input objects: one function for each format, from bytes to an Arrow table.

A reader refuses what it cannot read with one sentence that names the object and quotes nothing of it. It checks limits
before it allocates memory for what they limit. Columns keep the names of the file; text is parsed into declared types
only where the format has no types of its own.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Format
from kfm_pipelines.parquet.geoparquet import refuse_unless_wgs84
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.stages.compute.readers.csv_text import read_delimited
from kfm_pipelines.stages.compute.readers.geojson import read_geojson
from kfm_pipelines.stages.compute.readers.geopackage import read_geopackage
from kfm_pipelines.stages.compute.readers.geoparquet import read_geoparquet
from kfm_pipelines.stages.compute.readers.json_lines import read_json_lines
from kfm_pipelines.stages.compute.readers.shapefile import read_shapefile
from kfm_pipelines.stages.compute.readers.text import wanted_columns
from kfm_pipelines.stages.compute.readers.usgs import read_instantaneous_values

if TYPE_CHECKING:
    import pyarrow as pa

Reader = Callable[[bytes, str, Dataset], "pa.Table"]


def _read_parquet(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    if dataset.processor == "vector":
        return read_geoparquet(data, name, dataset)
    limits = dataset.input.limits
    table = read_parquet(
        data,
        name,
        unpacked_limit=limits.unpacked_bytes,
        row_limit=limits.rows,
        choose=None if dataset.input.columns == "all" else partial(wanted_columns, dataset=dataset),
    )
    refuse_unless_wgs84(data, name)
    return table


READERS: Mapping[Format, Reader] = {
    "parquet": _read_parquet,
    "csv": read_delimited,
    "ndjson": read_json_lines,
    "usgs-iv": read_instantaneous_values,
    "geojson": read_geojson,
    "geopackage": read_geopackage,
    "shapefile": read_shapefile,
}


def read_object(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    """Reads an object in the format that the end of its name has, or else in that of the dataset."""
    return READERS[dataset.input.format_of(name)](data, name, dataset)
