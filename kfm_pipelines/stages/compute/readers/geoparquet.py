"""Reads GeoParquet in any reference system, for features; tables must be in WGS 84 already."""

from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet.geoparquet import metadata_unreadable, read_geo_columns, read_stated_systems
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.stages.compute.readers.features import geometry_name, with_systems
from kfm_pipelines.stages.compute.readers.text import wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa


def read_geoparquet(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    """Takes the declared geometry, or the file's primary one if it has no column of that name. Leaves out boxes that
    the file has for its own geometries."""
    limits, declared = dataset.input.limits, geometry_name(dataset)
    chosen: list[str] = []

    def choose(found: list[str]) -> list[str]:
        limits.refuse(name, columns=len(found))
        primary, columns = _geometries(data, name)
        geometry = declared if declared in found or primary is None else primary
        _refuse_unless_planar_wkb(columns.get(geometry, {}), name)
        chosen.append(geometry)
        wanted = {*wanted_columns(found, dataset), geometry} - _coverings(columns)
        return [one for one in found if one in wanted]

    table = read_parquet(data, name, unpacked_limit=limits.unpacked_bytes, row_limit=limits.rows, choose=choose)
    [geometry] = chosen
    table = table.rename_columns([declared if one == geometry else one for one in table.column_names])
    try:
        systems = read_stated_systems(data)
    except (ValueError, RecursionError):
        raise metadata_unreadable(name) from None
    return with_systems(table.replace_schema_metadata(), systems, dataset)


def _geometries(data: bytes, name: str) -> tuple[str | None, dict[str, dict[str, Any]]]:
    try:
        return read_geo_columns(data)
    except (ValueError, RecursionError):
        raise metadata_unreadable(name) from None


def _refuse_unless_planar_wkb(column: dict[str, Any], name: str) -> None:
    if column.get("encoding", "WKB") != "WKB" or column.get("edges", "planar") != "planar":
        raise InputUnreadable(f"{name} has geometries that are not WKB with straight edges")


def _coverings(columns: dict[str, dict[str, Any]]) -> set[str]:
    """Returns the columns that hold the boxes of geometries, by the file's own metadata."""
    boxes = [column.get("covering") for column in columns.values()]
    edges = [box["bbox"] for box in boxes if isinstance(box, dict) and isinstance(box.get("bbox"), dict)]
    paths = [path for edge in edges for path in edge.values()]
    return {str(path[0]) for path in paths if isinstance(path, list) and len(path) == 2}
