"""Geometries in Parquet: the footer of a published file (GeoParquet 1.1), points as WKB, and the reference systems that
a file names anywhere, of which only WGS 84 is accepted.

The footer is derived only from the published rows and their declaration, never from the rows they were made of.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import rfc8785

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.vectors import COVERING
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet.boxes import covering_metadata

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

VERSION = "1.1.0"
GEO = "geo"
# Descriptions and units again: those on the fields are in Arrow's own form, which only Arrow reads.
COLUMNS = "kfm:columns"

# Byte order, kind, x and y of a point in little-endian WKB, packed.
_POINT = [("order", "u1"), ("kind", "<u4"), ("x", "<f8"), ("y", "<f8")]
_LITTLE_ENDIAN = 1
_WKB_POINT = 1

WGS84 = frozenset({"OGC:CRS84", "EPSG:4326"})
_NAME = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,10}")


def file_metadata(table: "pa.Table", declared: Table) -> dict[str, bytes]:
    metadata = {
        COLUMNS: rfc8785.dumps({column.name: _column_metadata(table, column.name) for column in declared.columns})
    }
    if geo := _geo_metadata(table, declared):
        metadata[GEO] = rfc8785.dumps(geo)
    return metadata


def box_of(column: "pa.ChunkedArray") -> list[float] | None:
    """Returns west, south, east and north of all geometries, None when there are none."""
    _, coordinates, _ = _read_geometries(column)
    return _bounding_box(coordinates)


def points_of(longitudes: "pa.ChunkedArray", latitudes: "pa.ChunkedArray") -> "pa.Array":
    """Returns the same bytes as shapely, much faster: null where either coordinate is."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    points = np.empty(len(longitudes), np.dtype(_POINT))
    points["order"], points["kind"] = _LITTLE_ENDIAN, _WKB_POINT
    points["x"], points["y"] = longitudes.to_numpy(), latitudes.to_numpy()
    ends = np.arange(len(points) + 1, dtype=np.int32) * points.itemsize
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(points.tobytes())]
    column = pa.Array.from_buffers(pa.binary(), len(points), buffers)
    valid = pc.and_(longitudes.is_valid(), latitudes.is_valid()).combine_chunks()
    return pc.if_else(valid, column, None) if pc.any(pc.invert(valid)).as_py() else column


def coordinates_of(values: "pa.Array") -> "NDArray[np.float64] | None":
    """Returns east and north of each value, none of which is null; None unless all are points in little-endian WKB."""
    import numpy as np

    if not len(values):
        return np.empty((0, 2))
    point = np.dtype(_POINT)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    if (np.diff(ends) != point.itemsize).any():
        return None
    points: NDArray[Any] = np.frombuffer(data, point, len(values), int(ends[0]))
    if (points["order"] != _LITTLE_ENDIAN).any() or (points["kind"] != _WKB_POINT).any():
        return None
    return np.column_stack([points["x"], points["y"]])


def _column_metadata(table: "pa.Table", name: str) -> dict[str, str]:
    metadata = table.schema.field(name).metadata if name in table.column_names else None
    return {fact.decode(): value.decode() for fact, value in (metadata or {}).items()}


def _geo_metadata(table: "pa.Table", declared: Table) -> dict[str, Any] | None:
    """Names no reference system: the default is OGC:CRS84, which every geometry here is in."""
    import pyarrow as pa

    names = [column.name for column in declared.columns if column.type == "geometry"]
    columns = {
        name: _geometry_metadata(table.column(name))
        for name in names
        if name in table.column_names and table.schema.field(name).type == pa.binary()
    }
    if not columns:
        return None
    primary = declared.geometry_column if declared.geometry_column in columns else next(iter(columns))
    if COVERING in table.column_names:
        columns[primary] = {**columns[primary], **covering_metadata(table.schema)}
    return {"version": VERSION, "primary_column": primary, "columns": columns}


def _geometry_metadata(column: "pa.ChunkedArray") -> Mapping[str, Any]:
    """Leaves out the box of geometries with heights: it would have six numbers, which few readers expect."""
    kinds, coordinates, has_heights = _read_geometries(column)
    box = None if has_heights else _bounding_box(coordinates)
    return {"encoding": "WKB", "geometry_types": kinds, **({"bbox": box} if box else {})}


def _read_geometries(column: "pa.ChunkedArray") -> "tuple[list[str], NDArray[np.float64], bool]":
    """Returns kinds, coordinates of all vertices, and whether any has a height. Skips unreadable geometries."""
    import numpy as np
    import pyarrow.compute as pc
    import shapely

    values = pc.unique(column).drop_null()
    points = coordinates_of(values)
    if points is not None:
        return ["Point"] if len(points) else [], points, False
    with np.errstate(invalid="ignore"):
        shapes = shapely.from_wkb(values.to_numpy(zero_copy_only=False), on_invalid="ignore")
    shapes = shapes[~shapely.is_missing(shapes)]
    high = shapely.has_z(shapes)
    kinds = {f"{shape.geom_type} Z" if z else str(shape.geom_type) for shape, z in zip(shapes, high, strict=True)}
    return sorted(kinds), shapely.get_coordinates(shapes), bool(high.any())


def _bounding_box(coordinates: "NDArray[np.float64]") -> list[float] | None:
    import numpy as np

    if not len(coordinates):
        return None
    box = [*coordinates.min(axis=0).tolist(), *coordinates.max(axis=0).tolist()]
    return box if np.isfinite(box).all() else None


def refuse_unless_wgs84(data: bytes, name: str) -> None:
    """Raises InputUnreadable, naming the object, when a readable Parquet file has places in another system."""
    try:
        systems = read_reference_systems(data)
    except (ValueError, RecursionError):
        raise metadata_unreadable(name) from None
    for system in systems:
        if system not in WGS84:
            raise InputUnreadable(f"{name} is in {system or 'an unnamed system'}, not in WGS 84")


def metadata_unreadable(name: str) -> InputUnreadable:
    return InputUnreadable(f"{name} has metadata about its coordinates that cannot be read")


def read_reference_systems(data: bytes) -> list[str | None]:
    """Returns every system the file names, such as `EPSG:4326`, or None. Raises ValueError or RecursionError."""
    return [_system_name(system) for system in read_stated_systems(data)]


def read_stated_systems(data: bytes) -> list[object]:
    """Returns every system as the file states it: a name, a PROJJSON document, or None."""
    file = _open(data)
    return [*_geoparquet_systems(file), *_field_systems(file), *_column_type_systems(file)]


def read_geo_columns(data: bytes) -> tuple[str | None, dict[str, dict[str, object]]]:
    """Returns the primary column and what GeoParquet's metadata states of each column; None and nothing without it."""
    text = (_open(data).schema_arrow.metadata or {}).get(b"geo")
    if text is None:
        return None, {}
    document = _require_mapping(json.loads(text))
    columns = _require_mapping(document.get("columns"))
    return str(document.get("primary_column")), {name: _require_mapping(one) for name, one in columns.items()}


def _open(data: bytes) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(io.BytesIO(data))


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
