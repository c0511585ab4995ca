"""Looks at an object: one inspector for each format, from bytes to what a declaration needs."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, get_args

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Dialect, Format, Input, Limits
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.operations.datasets.new.features import inspect_features
from kfm_pipelines.operations.datasets.new.inspection import ObjectInspection
from kfm_pipelines.operations.datasets.new.rasters import inspect_raster
from kfm_pipelines.operations.datasets.new.tables import describe_table
from kfm_pipelines.stages.compute.readers import READERS

if TYPE_CHECKING:
    import pyarrow as pa

Inspector = Callable[[bytes, str, str], ObjectInspection]  # bytes, name, format
SNIFFED_CHARACTERS = 20_000
_DELIMITERS = ",;\t|"
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")


def inspect_object(data: bytes, name: str) -> ObjectInspection:
    """Raises InputUnreadable if the format is unknown or the object cannot be read."""
    found = format_of(data, name)
    if found not in get_args(Format):
        raise InputUnreadable(f"{name} looks like {found}, which objects of a dataset cannot be in this version")
    return INSPECTORS[found](data, name, found)


def format_of(data: bytes, name: str) -> str:
    """Tells the format by the first bytes, else by the end of the name."""
    for magic, known in _MAGIC.items():
        if data.startswith(magic):
            return known
    ending = PurePosixPath(name.lower()).suffix
    if ending in (".json", ".geojson") and data.lstrip()[:1] == b"{":
        return _format_of_json(data, name)
    try:
        return _ENDINGS[ending]
    except KeyError:
        known = ", ".join(sorted(_ENDINGS))
        raise InputUnreadable(f"{name} is in no known format; names end in {known}") from None


_MAGIC: Mapping[bytes, str] = {
    b"PAR1": "parquet",
    b"SQLite format 3": "geopackage",
    b"PK\x03\x04": "shapefile",
    b"II*\x00": "geotiff",
    b"MM\x00*": "geotiff",
    b"II+\x00": "geotiff",
    b"GRIB": "grib2",
    b"CDF": "netcdf",
    b"\x89HDF": "netcdf",
    b"\x1f\x8b": "grib2",  # as NOAA packs its mosaics
}
_ENDINGS: Mapping[str, str] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".geojsonl": "ndjson",
    ".json": "usgs-iv",
    ".geojson": "geojson",
    ".gpkg": "geopackage",
    ".zip": "shapefile",
    ".tif": "geotiff",
    ".tiff": "geotiff",
    ".grib2": "grib2",
    ".grb2": "grib2",
    ".nc": "netcdf",
}


def _format_of_json(data: bytes, name: str) -> str:
    first, _, rest = data.strip().partition(b"\n")
    if rest.strip() and _is_object(first):
        return "ndjson"
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InputUnreadable(f"{name} is not JSON, and not one object a line") from None
    if document.get("type") in ("FeatureCollection", "Feature"):
        return "geojson"
    if isinstance(document.get("value"), dict) and "timeSeries" in document["value"]:
        return "usgs-iv"
    return "ndjson"


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _inspect_table(data: bytes, name: str, known: str, dialect: Dialect | None = None) -> ObjectInspection:
    table = READERS[known](data, name, _undeclared(known, dialect or Dialect()))  # type: ignore[index]
    found = describe_table(table, _geometry_of(table))
    options: dict[str, Any] = {"timezone": found.timezone} if found.timezone else {}
    if found.left_out:
        options["columns"] = "declared"
    if dialect is not None and (written := dialect.model_dump(exclude_defaults=True)):
        options["csv"] = written
    return ObjectInspection(known, "table", table=found, extent=found.extent, options=options)


def _inspect_delimited(data: bytes, name: str, known: str) -> ObjectInspection:
    return _inspect_table(data, name, known, _dialect_of(data, name))


def _undeclared(known: str, dialect: Dialect) -> Dataset:
    """Stands for a dataset without columns: a reader then leaves everything as the object has it."""
    read: dict[str, Any] = {"format": known, "formats": {}, "csv": dialect, "timezone": None, "columns": "all"}
    columns: dict[str, Any] = {"columns": []}
    parts: dict[str, Any] = {
        "dataset": "new/dataset",
        "processor": "table",
        "input": Input.model_construct(None, **read, limits=Limits()),
        "table": Table.model_construct(None, **columns),
    }
    return Dataset.model_construct(None, **parts)


def _dialect_of(data: bytes, name: str) -> Dialect:
    encoding: Any = "utf-16" if data.startswith(_BYTE_ORDER_MARKS) else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "windows-1252"
        text = data.decode(encoding, "replace")
    head = text[:SNIFFED_CHARACTERS]
    delimiter = "\t" if name.lower().endswith(".tsv") else _sniff(head)
    return Dialect(delimiter=delimiter, encoding=encoding)


def _sniff(head: str) -> str:
    try:
        return csv.Sniffer().sniff(head, delimiters=_DELIMITERS).delimiter
    except csv.Error:
        line = head.partition("\n")[0]
        return max(_DELIMITERS, key=line.count)


def _geometry_of(table: "pa.Table") -> str | None:
    """Returns the primary column of GeoParquet."""
    try:
        stated = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    except ValueError:
        return None
    name = stated.get("primary_column")
    return name if name in table.column_names else None


INSPECTORS: Mapping[str, Inspector] = {
    "parquet": _inspect_table,
    "csv": _inspect_delimited,
    "ndjson": _inspect_table,
    "usgs-iv": _inspect_table,
    "geojson": inspect_features,
    "geopackage": inspect_features,
    "shapefile": inspect_features,
    "geotiff": inspect_raster,
    "grib2": inspect_raster,
    "netcdf": inspect_raster,
}
