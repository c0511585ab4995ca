"""Geometries in Parquet: the footer of a published file (GeoParquet 1.1), and points as WKB.

The footer is derived only from the published rows and their declaration, never from the rows they were made of.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import rfc8785

from kfm_pipelines.declarations import Table

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
