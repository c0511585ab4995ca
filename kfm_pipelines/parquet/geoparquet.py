"""What a published file says of itself in its footer: where its geometries are (GeoParquet 1.1), what its columns hold.

Everything here follows from the rows beside it and from the declaration of what readers get, never from what the rows
were made of.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import rfc8785

from kfm_pipelines.declarations import Table
from kfm_pipelines.parquet.points import coordinates_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

VERSION = "1.1.0"
GEO = "geo"
# Descriptions and units once more: those on the fields are in Arrow's own form, which only Arrow reads.
COLUMNS = "kfm:columns"


def file_metadata(table: "pa.Table", declared: Table) -> dict[str, bytes]:
    metadata = {
        COLUMNS: rfc8785.dumps({column.name: _column_metadata(table, column.name) for column in declared.columns})
    }
    if geo := _geo_metadata(table, declared):
        metadata[GEO] = rfc8785.dumps(geo)
    return metadata


def _column_metadata(table: "pa.Table", name: str) -> dict[str, str]:
    metadata = table.schema.field(name).metadata if name in table.column_names else None
    return {fact.decode(): value.decode() for fact, value in (metadata or {}).items()}


def _geo_metadata(table: "pa.Table", declared: Table) -> dict[str, Any] | None:
    """A column that names no reference system is in OGC:CRS84, as every geometry here is."""
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


def box_of(column: "pa.ChunkedArray") -> list[float] | None:
    """West, south, east and north of all geometries; None when there is no place among them."""
    _, coordinates, _ = _read_geometries(column)
    return _bounding_box(coordinates)


def _geometry_metadata(column: "pa.ChunkedArray") -> Mapping[str, Any]:
    """Which kinds there are and the box around them. With heights it would have six numbers, which hardly any reader
    expects; it may be left out."""
    kinds, coordinates, high = _read_geometries(column)
    box = None if high else _bounding_box(coordinates)
    return {"encoding": "WKB", "geometry_types": kinds, **({"bbox": box} if box else {})}


def _read_geometries(column: "pa.ChunkedArray") -> "tuple[list[str], NDArray[np.float64], bool]":
    """Kinds of geometry, coordinates of all corners, and whether any has a height. What cannot be read is the gate's to
    refuse."""
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
