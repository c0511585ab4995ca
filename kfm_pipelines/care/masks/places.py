"""Reads the places of a table and refuses unfit ones. Messages give counts, never positions."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import shapely

from kfm_pipelines.care.masks.types import Flags, Floats, Ints, Objects, format_record_count
from kfm_pipelines.care.rules import GeometryKind
from kfm_pipelines.declarations import Extent, Table
from kfm_pipelines.errors import PolicyRefused

KINDS: tuple[GeometryKind, ...] = ("point", "line", "polygon")
# Indexed by shapely's type id: Point, LineString, LinearRing, Polygon, MultiPoint, MultiLineString, MultiPolygon,
# GeometryCollection and later types. A closed line is read as a LineString; -1 is no kind.
_KIND_OF_TYPE = (0, 1, -1, 2, -1, 1, 2, -1)
_WGS84 = (0, 4326)  # 0: the geometry names no reference system


@dataclass(frozen=True, slots=True)
class Places:
    kinds: Ints  # positions in KINDS
    longitudes: Floats  # of the point, or of the middle of a shape
    latitudes: Floats
    shapes: Objects | None  # None when places are coordinates


def read_places(table: pa.Table, declared: Table, extent: Extent) -> Places:
    """Raises PolicyRefused when a place is missing, unreadable or outside the dataset's extent."""
    pair = _read_coordinates(table, declared, extent)
    if declared.geometry_column is not None:
        return _read_geometries(table, declared.geometry_column, extent)
    if pair is None:
        raise PolicyRefused("the dataset declares no place column to mask")
    return pair


def _read_coordinates(table: pa.Table, declared: Table, extent: Extent) -> Places | None:
    if declared.longitude_column is None or declared.latitude_column is None:
        return None
    longitudes = _read_degrees(table, declared.longitude_column)
    latitudes = _read_degrees(table, declared.latitude_column)
    _refuse_misplaced(longitudes, latitudes, np.arange(table.num_rows), extent)
    return Places(np.zeros(table.num_rows, np.int64), longitudes, latitudes, None)


def _read_degrees(table: pa.Table, name: str) -> Floats:
    column = table.column(name)
    if column.type != pa.float64():
        raise PolicyRefused(f"the column {name!r} must hold degrees as float64")
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), np.float64)


def _read_geometries(table: pa.Table, name: str, extent: Extent) -> Places:
    column = table.column(name)
    if column.type != pa.binary():
        raise PolicyRefused(f"the column {name!r} must hold WKB as binary")
    _refuse(column.is_null().to_numpy(), "no geometry")
    with np.errstate(invalid="ignore"):  # non-finite coordinates get a message of their own below
        shapes = np.asarray(shapely.from_wkb(np.array(column.to_pylist(), object), on_invalid="ignore"), object)
    _refuse(shapely.is_missing(shapes), f"something in {name!r} that is not WKB")
    _refuse(shapely.is_empty(shapes), "an empty geometry")
    _refuse(~np.isin(shapely.get_srid(shapes), _WGS84), "a geometry in a reference system other than WGS 84")
    kinds = np.array(_KIND_OF_TYPE, np.int64)[np.minimum(shapely.get_type_id(shapes), len(_KIND_OF_TYPE) - 1)]
    _refuse(kinds < 0, "a geometry that is not a point, line or polygon")
    corners, record = shapely.get_coordinates(shapes, return_index=True)
    _refuse_misplaced(corners[:, 0], corners[:, 1], record, extent)
    middles = shapely.centroid(shapes)
    return Places(kinds, shapely.get_x(middles), shapely.get_y(middles), shapes)


def _refuse_misplaced(longitudes: Floats, latitudes: Floats, record: Ints, extent: Extent) -> None:
    unfit = ~(np.isfinite(longitudes) & np.isfinite(latitudes))
    if unfit.any():
        count = len(np.unique(record[unfit]))
        raise PolicyRefused(f"{format_record_count(count)} a coordinate that is missing or not a finite number")
    outside = ~_inside(longitudes, latitudes, extent)
    if not outside.any():
        return
    swapped = _inside(latitudes[outside], longitudes[outside], extent)
    hint = "; with latitude and longitude swapped they would be inside" if swapped.all() else ""
    count = len(np.unique(record[outside]))
    raise PolicyRefused(f"{format_record_count(count)} a place outside the extent of the dataset{hint}")


def _inside(longitudes: Floats, latitudes: Floats, extent: Extent) -> Flags:
    return (
        (longitudes >= extent.west)
        & (longitudes <= extent.east)
        & (latitudes >= extent.south)
        & (latitudes <= extent.north)
    )


def _refuse(found: Flags, what: str) -> None:
    if count := int(found.sum()):
        raise PolicyRefused(f"{format_record_count(count)} {what}")
