"""Reads the coordinate reference systems that a Parquet file names, anywhere. Only WGS 84 is accepted."""

import io
import json
import re
from collections.abc import Iterator
from typing import Any

from kfm_pipelines.errors import InputUnreadable

WGS84 = frozenset({"OGC:CRS84", "EPSG:4326"})
_NAME = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,10}")


def refuse_unless_wgs84(data: bytes, name: str) -> None:
    """Raises InputUnreadable, naming the object, when a readable Parquet file has places in another system."""
    try:
        systems = read_reference_systems(data)
    except (ValueError, RecursionError):
        raise InputUnreadable(f"{name} has metadata about its coordinates that cannot be read") from None
    for system in systems:
        if system not in WGS84:
            raise InputUnreadable(f"{name} is in {system or 'an unnamed system'}, not in WGS 84")


def read_reference_systems(data: bytes) -> list[str | None]:
    """Returns every system the file names, such as `EPSG:4326`, or None. Raises ValueError or RecursionError."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))
    named = (*_geoparquet_systems(file), *_field_systems(file), *_column_type_systems(file))
    return [_system_name(system) for system in named]


def _geoparquet_systems(file: Any) -> Iterator[object]:
    """By the standard, a column without `crs` is in OGC:CRS84, and one whose `crs` is null is in an unknown system."""
    text = (file.schema_arrow.metadata or {}).get(b"geo")
    if text is None:
        return
    columns = _require_mapping(_require_mapping(json.loads(text)).get("columns"))
    for column in columns.values():
        yield _require_mapping(column).get("crs", "OGC:CRS84")


def _field_systems(file: Any) -> Iterator[object]:
    has_geoparquet = b"geo" in (file.schema_arrow.metadata or {})
    for field in file.schema_arrow:
        metadata = field.metadata or {}
        if b"crs" in metadata:
            yield _parse_system(metadata[b"crs"])
        if metadata.get(b"ARROW:extension:name", b"").startswith(b"geoarrow."):
            document = _require_mapping(json.loads(metadata.get(b"ARROW:extension:metadata") or b"{}"))
            # Unlike in GeoParquet, a missing crs has no default here.
            if "crs" in document or not has_geoparquet:
                yield document.get("crs")


def _column_type_systems(file: Any) -> Iterator[object]:
    for place in range(len(file.schema)):
        kind = json.loads(file.schema.column(place).logical_type.to_json())
        if kind.get("Type") in ("Geometry", "Geography"):
            yield _parse_system(str(kind.get("crs") or "OGC:CRS84").encode())


def _parse_system(value: bytes) -> object:
    text = value.decode("utf-8")
    return json.loads(text) if text.lstrip().startswith(("{", '"')) or text.strip() == "null" else text


def _require_mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _system_name(system: object) -> str | None:
    """Returns `EPSG:4326` for a name or a PROJJSON document; None for anything else, which is never quoted."""
    if isinstance(system, dict):
        identity = _require_mapping(system.get("id") or {})
        system = f"{identity.get('authority')}:{identity.get('code')}" if identity else None
    if not isinstance(system, str) or not _NAME.fullmatch(system.strip()):
        return None
    return system.strip().upper()
