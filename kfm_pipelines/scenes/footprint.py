"""The footprint of a scene: a valid polygon in degrees, whatever its provider writes it in."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

MAX_VERTICES = 10_000
DECIMALS = 7  # a centimetre


def read_footprint(geometry: object, name: str, epsg: int = 4326) -> "BaseGeometry":
    """Returns a polygon of GeoJSON in degrees. Raises InputUnreadable unless it is a valid one on the Earth.

    One that crosses the antimeridian continues beyond 180 degrees, so that it does not seem to go round the Earth.
    """
    import numpy as np
    import shapely

    shape = _parse(geometry, name)
    if epsg != 4326:
        shape = _to_degrees(shape, epsg, name)
    positions = shapely.get_coordinates(shape)
    if not np.isfinite(positions).all() or (np.abs(positions) > (180, 90)).any():
        raise InputUnreadable(f"{name}: the footprint is not on the Earth; positions must be degrees, longitude first")
    if np.ptp(positions[:, 0]) > 180:
        shape = shapely.transform(shape, lambda one: np.where((one < 0) & ([True, False]), one + 360, one))
    shape = shapely.normalize(shapely.transform(shape, lambda one: np.round(one, DECIMALS)))
    if not shape.is_valid or shape.area == 0:
        raise InputUnreadable(f"{name}: the footprint is not a valid polygon: {_problem(shape)}")
    return shape


def _parse(geometry: object, name: str) -> "BaseGeometry":
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    if not isinstance(geometry, Mapping) or geometry.get("type") not in ("Polygon", "MultiPolygon"):
        raise InputUnreadable(f"{name}: the footprint must be a polygon of GeoJSON")
    coordinates = geometry.get("coordinates")
    try:
        if sum(1 for _ in _numbers(coordinates)) > 3 * MAX_VERTICES:
            raise InputUnreadable(f"{name}: the footprint has more than {MAX_VERTICES} vertices")
        parsed = shape({"type": geometry["type"], "coordinates": coordinates})
    except (ValueError, TypeError, IndexError, RecursionError, ShapelyError):
        raise InputUnreadable(f"{name}: the footprint must be a polygon of GeoJSON") from None
    if parsed.is_empty or parsed.has_z:
        raise InputUnreadable(f"{name}: the footprint must have positions of two numbers")
    return parsed


def _numbers(coordinates: Any) -> Iterator[float]:
    if isinstance(coordinates, list):
        for one in coordinates:
            yield from _numbers(one)
    elif isinstance(coordinates, int | float) and math.isfinite(coordinates):
        yield coordinates
    else:
        raise ValueError("not a finite number")


def _to_degrees(shape: "BaseGeometry", epsg: int, name: str) -> "BaseGeometry":
    import numpy as np
    import pyproj
    import shapely

    try:
        convert = pyproj.Transformer.from_crs(epsg, 4326, always_xy=True)
    except pyproj.exceptions.CRSError:
        raise InputUnreadable(f"{name}: EPSG:{epsg} is no reference system that is known here") from None
    return shapely.transform(shape, lambda one: np.column_stack(convert.transform(one[:, 0], one[:, 1])))


def _problem(shape: "BaseGeometry") -> str:
    """Says what is wrong without the place where."""
    import shapely

    return "it has no area" if shape.is_valid else str(shapely.is_valid_reason(shape)).partition("[")[0].lower()
