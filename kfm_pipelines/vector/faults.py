"""Faults of features. Each is one phrase that states how many features have it, and never where they are."""

from collections.abc import Iterator

import numpy as np
import shapely

from kfm_pipelines.declarations import Extent
from kfm_pipelines.vector.types import Flags, Floats, Shapes, format_feature_count

_COLLECTION = 7
_POLYGONS = (3, 6)
# Of the square of its length: far below any real sliver, far above what rounding leaves of an area that is none.
_NO_AREA = 1e-12


def faults_as_read(shapes: Shapes, absent: Flags) -> Iterator[str]:
    """Yields what is wrong with shapes in their own system; the first one makes the others doubtful."""
    yield from _fault(absent, "no geometry")
    yield from _fault(shapely.is_missing(shapes) & ~absent, "something in place of a geometry that cannot be read")
    yield from _fault(shapely.is_empty(shapes), "an empty geometry")
    yield from _fault(shapely.get_type_id(shapes) == _COLLECTION, "a collection of geometries instead of one")
    coordinates, feature = shapely.get_coordinates(shapes, return_index=True)
    yield from _fault(_any_of(~np.isfinite(coordinates).all(axis=1), feature, shapes), "a coordinate that is no number")
    yield from _fault(_has_ring_without_area(shapes), "a ring without area")


def faults_in_degrees(shapes: Shapes, extent: Extent | None) -> Iterator[str]:
    """Yields what is wrong with shapes in degrees: their range, their axes, and the antimeridian."""
    coordinates, feature = shapely.get_coordinates(shapes, return_index=True)
    x, y = coordinates[:, 0], coordinates[:, 1]
    hint = "; with longitude and latitude swapped all would be in it" if _fits(y, x) else ""
    phrase = f"a place outside of longitudes from -180 to 180 and latitudes from -90 to 90{hint}"
    yield from _fault(_any_of(~_in_range(x, y), feature, shapes), phrase)
    if extent is not None and len(x) and not _inside(x, y, extent).any() and _inside(y, x, extent).all():
        everything = np.ones(len(shapes), np.bool_)
        yield from _fault(everything, "longitude and latitude swapped: only then all are in the declared extent")
    yield from _fault(_crosses_antimeridian(shapes), "a shape across the antimeridian; have it cut in two there")


def _fault(found: Flags, phrase: str) -> Iterator[str]:
    if count := int(found.sum()):
        yield f"{format_feature_count(count)} {phrase}"


def _any_of(found: Flags, feature: np.ndarray, shapes: Shapes) -> Flags:
    """Returns which features have a vertex that was found."""
    return np.bincount(feature[found], minlength=len(shapes)).astype(np.bool_)


def _has_ring_without_area(shapes: Shapes) -> Flags:
    polygons = np.flatnonzero(np.isin(shapely.get_type_id(shapes), _POLYGONS))
    parts, owner = shapely.get_parts(shapes[polygons], return_index=True)
    rings, part = shapely.get_rings(parts, return_index=True)
    least = _NO_AREA * shapely.length(rings) ** 2
    flat = shapely.area(shapely.polygons(rings)) <= least
    flat[flat] = shapely.area(shapely.convex_hull(rings[flat])) <= least[flat]  # the two halves of a bow tie cancel out
    return _any_of(flat, polygons[owner[part]], shapes)


def _in_range(x: Floats, y: Floats) -> Flags:
    flags: Flags = (np.abs(x) <= 180.0) & (np.abs(y) <= 90.0)
    return flags


def _fits(x: Floats, y: Floats) -> bool:
    return bool(_in_range(x, y).all())


def _inside(x: Floats, y: Floats, extent: Extent) -> Flags:
    flags: Flags = (x >= extent.west) & (x <= extent.east) & (y >= extent.south) & (y <= extent.north)
    return flags


def _crosses_antimeridian(shapes: Shapes) -> Flags:
    """A part that is wider than half the earth goes the other way round; one that is cut there is not that wide."""
    parts, owner = shapely.get_parts(shapes, return_index=True)
    west, _, east, _ = shapely.bounds(parts).T
    wide = (east - west > 180.0) & np.isin(shapely.get_dimensions(parts), (1, 2))
    return _any_of(wide, owner, shapes)
