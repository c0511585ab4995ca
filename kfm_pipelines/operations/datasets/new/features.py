"""Looks at files of features: their layer, fields, reference system and extent.

GDAL gets only bytes that can be nothing but the format: it would open others with whatever driver likes them.
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.identity import BBox
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.operations.datasets.new.blank_dataset import blank_dataset
from kfm_pipelines.operations.datasets.new.inspection import FoundTable, ObjectInspection
from kfm_pipelines.operations.datasets.new.tables import SAMPLE_ROWS, describe_table
from kfm_pipelines.parquet.geoparquet import box_of, read_geo_columns, read_stated_systems
from kfm_pipelines.raster.open import GDAL_OPTIONS
from kfm_pipelines.stages.compute.readers.geoparquet import read_geoparquet
from kfm_pipelines.vector.systems import choose_system

if TYPE_CHECKING:
    import pyarrow as pa

_DRIVERS = {"geojson": "GeoJSON", "geopackage": "GPKG", "shapefile": "ESRI Shapefile"}
_OPTIONS = {**GDAL_OPTIONS, "OGR_SQLITE_ALLOW_EXTERNAL_ACCESS": "NO", "SHAPE_RESTORE_SHX": "NO"}
_SHAPEFILE_SUFFIXES = frozenset({".shp", ".shx", ".dbf", ".prj", ".cpg", ".sbn", ".sbx", ".xml", ".txt", ".qmd"})
_GEOPACKAGE_AT = slice(68, 70)  # where SQLite has the id of the application
MAX_UNPACKED = 2**30


def inspect_features(data: bytes, name: str, known: str) -> ObjectInspection:
    """Reads the first layer; a file with several is declared with the name of one."""
    import pyogrio

    if not _can_be(data, known):
        raise _unreadable(name, known)
    pyogrio.set_gdal_config_options({option: str(value) for option, value in _OPTIONS.items()})
    try:
        layers = [str(layer) for layer, kind in pyogrio.list_layers(data) if kind is not None]
        info = pyogrio.read_info(data, layer=0)
        meta, table = pyogrio.read_arrow(data, layer=0, max_features=SAMPLE_ROWS)
    except (OSError, RuntimeError, ValueError, IndexError):  # pyogrio's own included
        raise _unreadable(name, known) from None
    if info["driver"] != _DRIVERS[known] or not layers:
        raise _unreadable(name, known)
    if not info["crs"]:
        raise InputUnreadable(f"{name} names no reference system, so its places are unknown")
    found = describe_table(_name_geometry(table, meta), geometry="geometry")
    several = (f"the file has the layers {', '.join(layers)}; this is about the first",) if len(layers) > 1 else ()
    return ObjectInspection(
        format=known,
        processor="vector",
        table=found,
        extent=_in_degrees(info["total_bounds"], info["crs"]),
        options=_options(found),
        layer=layers[0] if len(layers) > 1 else None,
        unsure=several,
    )


def inspect_geoparquet(data: bytes, name: str) -> ObjectInspection | None:
    """Returns None for Parquet that says nothing of geometries, or nothing that can be read."""
    try:
        primary, _ = read_geo_columns(data)
    except (OSError, ValueError, RecursionError):  # pyarrow's own included
        return None
    if primary is None:
        return None
    table = read_geoparquet(data, name, blank_dataset("parquet", geometry=primary))
    if primary not in table.column_names:
        return None
    system = choose_system(read_stated_systems(data), name)
    found = describe_table(table, geometry=primary)
    return ObjectInspection(
        format="parquet",
        processor="vector",
        table=found,
        extent=_in_degrees(box_of(table.column(primary)), system),
        options=_options(found),
    )


def _options(found: FoundTable) -> dict[str, str]:
    return {"columns": "declared"} if found.left_out else {}


def _unreadable(name: str, known: str) -> InputUnreadable:
    """Leaves out GDAL's own message, which may quote the file."""
    return InputUnreadable(f"{name} is not readable as {known}")


def _can_be(data: bytes, known: str) -> bool:
    if known == "geojson":
        return data.lstrip()[:1] == b"{"
    if known == "geopackage":
        return data.startswith(b"SQLite format 3") and data[_GEOPACKAGE_AT] == b"GP"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError):
        return False
    paths = [PurePosixPath(member.filename) for member in members]
    return (
        all(path.suffix.lower() in _SHAPEFILE_SUFFIXES and ".." not in path.parts for path in paths)
        and any(path.suffix.lower() == ".shp" for path in paths)
        and sum(member.file_size for member in members) <= MAX_UNPACKED
    )


def _name_geometry(table: "pa.Table", meta: dict[str, Any]) -> "pa.Table":
    """Names the column of geometries `geometry`, which is what a declaration looks for."""
    found = meta["geometry_name"] or "wkb_geometry"
    return table.rename_columns(["geometry" if column == found else column for column in table.column_names])


def _in_degrees(bounds: Sequence[float] | None, system: Any) -> BBox | None:
    from pyproj import Transformer

    if bounds is None:
        return None
    to_degrees = Transformer.from_crs(system, "OGC:CRS84", always_xy=True)
    west, south, east, north = bounds
    return to_degrees.transform_bounds(west, south, east, north)
