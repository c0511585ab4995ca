"""Reads GeoJSON. Only its features reach GDAL, so that nothing around them can be understood as something else."""

from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.stages.compute.readers.features import read_layer, unreadable, with_systems
from kfm_pipelines.stages.compute.readers.text import parse_declared_columns

if TYPE_CHECKING:
    import pyarrow as pa

# By RFC 7946, unless an older file has a member `crs`.
DEFAULT_SYSTEM = "OGC:CRS84"
_HEAD, _TAIL = b'{"type":"FeatureCollection","features":[', b"]}"


def read_geojson(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    members, features = _split(data.removeprefix(b"\xef\xbb\xbf"), name)
    dataset.input.limits.refuse(name, rows=len(features))
    systems = _stated_systems(data, members, features, name) or [DEFAULT_SYSTEM]
    if not features:
        raise InputUnreadable(f"{name} has no features")
    document = _HEAD + b",".join(features) + _TAIL
    table, _ = read_layer(document, name, dataset, "GeoJSON", DATE_AS_STRING="YES")
    if lost := len(features) - table.num_rows:
        raise InputUnreadable(f"{name} has {len(features)} features, of which {lost} cannot be read")
    return with_systems(parse_declared_columns(table, dataset), systems, dataset)


def _split(data: bytes, name: str) -> tuple[dict[str, Any], list[bytes]]:
    """Returns the members of the document, not decoded, and its features."""
    import msgspec

    try:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        kind = msgspec.json.decode(members["type"])
        if kind == "Feature":
            return members, [data]
        features = msgspec.json.decode(members["features"], type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, KeyError, UnicodeDecodeError):
        raise unreadable(name, "GeoJSON") from None
    if kind != "FeatureCollection":
        raise unreadable(name, "GeoJSON")
    return members, [bytes(one) for one in features]


def _stated_systems(data: bytes, members: dict[str, Any], features: list[bytes], name: str) -> list[object]:
    """Returns the systems that members `crs` name, of the document, its features and their geometries; None for one
    that names none."""
    import msgspec

    found: list[object] = []
    if "crs" in members:
        found.append(_system_name(msgspec.json.decode(members["crs"]), name))
    inner = [feature for feature in features if b'"crs"' in feature] if data.count(b'"crs"') > len(found) else []
    for feature in inner:
        document = msgspec.json.decode(feature)
        for holder in (document, document.get("geometry") if isinstance(document, dict) else None):
            if isinstance(holder, dict) and "crs" in holder:
                found.append(_system_name(holder["crs"], name))
    return list(dict.fromkeys(found))


def _system_name(system: object, name: str) -> str | None:
    """Refuses a link to a system: nothing is fetched."""
    if system is None:
        return None
    properties = system.get("properties") if isinstance(system, dict) and system.get("type") == "name" else None
    stated = properties.get("name") if isinstance(properties, dict) else None
    if not isinstance(stated, str):
        raise InputUnreadable(f"{name} has a member crs that does not name a reference system")
    return stated
