"""Looks at an object: one inspector for each format, from bytes to what a declaration needs."""

import csv
import json
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, get_args

from kfm_pipelines.declarations.inputs import Dialect, Format
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.operations.datasets.new.blank_dataset import blank_dataset
from kfm_pipelines.operations.datasets.new.features import inspect_features, inspect_geoparquet
from kfm_pipelines.operations.datasets.new.inspection import ObjectInspection
from kfm_pipelines.operations.datasets.new.rasters import inspect_level3, inspect_raster
from kfm_pipelines.operations.datasets.new.tables import describe_table
from kfm_pipelines.raster.read import GZIP
from kfm_pipelines.stages.compute.readers import READERS

Inspector = Callable[[bytes, str, str], ObjectInspection]  # bytes, name, format
SNIFFED_CHARACTERS = 20_000
RASTER_FORMATS = ("geotiff", "grib2", "netcdf", "nexrad-level3")
SCENES = (
    "scenes stay in folders of their provider and are not drafted: copy resources/datasets/usgs-landsat-ndvi.yaml or "
    "esa-sentinel-2-scenes.yaml and edit it (docs/datasets.md, Scenes)"
)
_DELIMITERS = ",;\t|"
_LEVEL3 = re.compile(rb"(?:SD|NX|NO)US\d{2} [A-Z]{4} \d{6}\r\r\n")  # the header of a bulletin, near the beginning
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")


def inspect_object(data: bytes, name: str) -> ObjectInspection:
    """Raises InputUnreadable if the format is unknown or the object cannot be read."""
    found = format_of(data, name)
    if found not in get_args(Format):
        raise InputUnreadable(f"{name} looks like {found}, which objects of a dataset cannot be in this version")
    return INSPECTORS[found](data, name, found)


def format_of(data: bytes, name: str) -> str:
    """Tells the format by the first bytes, else by the end of the name."""
    if data.startswith(GZIP):
        return _format_in_gzip(data, name)
    for magic, known in _MAGIC.items():
        if data.startswith(magic):
            return known
    if _LEVEL3.search(data[:64]):
        return "nexrad-level3"
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
    ".nids": "nexrad-level3",
}


def _format_in_gzip(data: bytes, name: str) -> str:
    """Only rasters are read from gzip, as NOAA packs its mosaics."""
    try:
        first = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data, SNIFFED_CHARACTERS)
    except zlib.error:
        raise InputUnreadable(f"{name} is not readable as gzip: it is damaged") from None
    known = None if first.startswith(GZIP) else format_of(first, name.removesuffix(".gz"))
    if known not in RASTER_FORMATS:
        raise InputUnreadable(f"{name} is packed by gzip, which only rasters may be; unpack it first")
    return known


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
    if "LANDSAT_METADATA_FILE" in document or {"utmZone", "latitudeBand"} <= document.keys():
        raise InputUnreadable(f"{name} describes a scene; {SCENES}")
    if isinstance(document.get("value"), dict) and "timeSeries" in document["value"]:
        return "usgs-iv"
    return "ndjson"


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _inspect_table(data: bytes, name: str, known: str, dialect: Dialect | None = None) -> ObjectInspection:
    table = READERS[known](data, name, blank_dataset(known, dialect))  # type: ignore[index]
    found = describe_table(table)
    options: dict[str, Any] = {"timezone": found.timezone} if found.timezone else {}
    if found.left_out:
        options["columns"] = "declared"
    if dialect is not None and (written := dialect.model_dump(exclude_defaults=True)):
        options["csv"] = written
    return ObjectInspection(known, "table", table=found, extent=found.extent, options=options)


def _inspect_parquet(data: bytes, name: str, known: str) -> ObjectInspection:
    return inspect_geoparquet(data, name) or _inspect_table(data, name, known)


def _inspect_delimited(data: bytes, name: str, known: str) -> ObjectInspection:
    return _inspect_table(data, name, known, _dialect_of(data, name))


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


INSPECTORS: Mapping[str, Inspector] = {
    "parquet": _inspect_parquet,
    "csv": _inspect_delimited,
    "ndjson": _inspect_table,
    "usgs-iv": _inspect_table,
    "geojson": inspect_features,
    "geopackage": inspect_features,
    "shapefile": inspect_features,
    "geotiff": inspect_raster,
    "grib2": inspect_raster,
    "netcdf": inspect_raster,
    "nexrad-level3": inspect_level3,
}
