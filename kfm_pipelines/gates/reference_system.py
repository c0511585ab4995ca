"""Which coordinate reference system a Parquet file says its places are in. Only WGS 84 longitude and latitude will do.

A file can say so in its GeoParquet metadata, in the metadata of a column, or in the type of a column. One that says
nothing has no places, or has them in columns whose declaration says what they are.
"""

import io
import json
import re
from collections.abc import Iterator
from typing import Any

from kfm_pipelines.errors import InputUnreadable

WGS84 = frozenset({"OGC:CRS84", "EPSG:4326"})
_NAME = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,10}")


def refuse_unless_wgs84(data: bytes, name: str) -> None:
    """`data` is a readable Parquet file; InputUnreadable, naming the object, when its places are in anything else."""
    try:
        systems = read_reference_systems(data)
    except (ValueError, RecursionError):
        raise InputUnreadable(f"{name} has metadata about its coordinates that cannot be read") from None
    for system in systems:
        if system not in WGS84:
            raise InputUnreadable(f"{name} is in {system or 'an unnamed system'}, not in WGS 84")


def read_reference_systems(data: bytes) -> list[str | None]:
    """Every system the file names, as `EPSG:4326`; None for one that has no such name. ValueError or RecursionError
    when what it says cannot be read."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))
    return [
        _system_name(said) for said in (*_geoparquet_systems(file), *_field_systems(file), *_column_type_systems(file))
    ]


def _geoparquet_systems(file: Any) -> Iterator[object]:
    """By the standard a column that names no system is in OGC:CRS84, and one whose system is null is in nobody knows
    what."""
    text = (file.schema_arrow.metadata or {}).get(b"geo")
    if text is None:
        return
    columns = _require_mapping(_require_mapping(json.loads(text)).get("columns"))
    for column in columns.values():
        yield _require_mapping(column).get("crs", "OGC:CRS84")


def _field_systems(file: Any) -> Iterator[object]:
    said_already = b"geo" in (file.schema_arrow.metadata or {})
    for field in file.schema_arrow:
        metadata = field.metadata or {}
        if b"crs" in metadata:
            yield _parse_system(metadata[b"crs"])
        if metadata.get(b"ARROW:extension:name", b"").startswith(b"geoarrow."):
            document = _require_mapping(json.loads(metadata.get(b"ARROW:extension:metadata") or b"{}"))
            # Unlike in GeoParquet, saying nothing means nothing here.
            if "crs" in document or not said_already:
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
    """`EPSG:4326` for a name or a PROJJSON document; None for what has no such name, which is never quoted."""
    if isinstance(system, dict):
        identity = _require_mapping(system.get("id") or {})
        system = f"{identity.get('authority')}:{identity.get('code')}" if identity else None
    if not isinstance(system, str) or not _NAME.fullmatch(system.strip()):
        return None
    return system.strip().upper()
