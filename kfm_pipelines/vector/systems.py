"""Reference systems: what a file states about its own, and the way from there to WGS 84."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import pyproj
import shapely
from pyproj.exceptions import ProjError
from pyproj.network import set_network_enabled  # type: ignore[attr-defined]  # documented, but not re-exported

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.vector.types import Floats, Shapes

# Longitude first, which is the order of coordinates in GeoParquet and GeoJSON.
WGS84 = "OGC:CRS84"
# A tenth of a millimetre: the same shapes from files in different systems have the same coordinates.
DECIMALS = 9
_NAME_OR_WKT = re.compile(
    r"[A-Za-z]+:[A-Za-z0-9_.]+$|urn:ogc:def:crs:|https?://www\.opengis\.net/def/crs/|[A-Z_]+\s*\["
)
_PROJ_LANGUAGE = frozenset({"proj", "init"})
_GRID = re.compile(r"PARAMETERFILE|grids\s*=", re.IGNORECASE)


def choose_system(stated: Sequence[object], name: str) -> pyproj.CRS:
    """Returns the one system that an object states, by name, as WKT or as PROJJSON. Raises InputUnreadable unless there
    is exactly one, of places on the earth."""
    if not stated or not all(stated):
        raise InputUnreadable(f"{name} does not state the reference system of its coordinates")
    first, *others = [_parse_system(one, name) for one in stated]
    if not all(first.equals(other, ignore_axis_order=True) for other in others):
        raise InputUnreadable(f"{name} states two different reference systems")
    if not (first.is_geographic or first.is_projected):
        raise InputUnreadable(f"{name} is in a reference system without longitudes and latitudes")
    return first


def _parse_system(stated: object, name: str) -> pyproj.CRS:
    """Takes names, WKT and PROJJSON. PROJ's own language is refused, and so is a grid: both can name files to open."""
    is_text = isinstance(stated, str) and _NAME_OR_WKT.match(stated.strip())
    is_document = isinstance(stated, dict) and "type" in stated and not _PROJ_LANGUAGE & stated.keys()
    try:
        system = pyproj.CRS.from_user_input(cast("Any", stated)) if is_text or is_document else None
        text = system.to_wkt() if system else ""
    except (ProjError, ValueError, TypeError, RecursionError):
        system, text = None, ""
    if system is None or _GRID.search(text):
        raise InputUnreadable(f"{name} states a reference system that is not known")
    return system


def is_in_degrees(system: pyproj.CRS) -> bool:
    return system.is_geographic and all(axis.unit_name == "degree" for axis in system.axis_info[:2])


def reproject(shapes: Shapes, system: pyproj.CRS, name: str) -> Shapes:
    """Returns the shapes in WGS 84, longitude first, with rounded coordinates: infinite where there is no such place.
    Raises InputUnreadable for a datum that can only be guessed, which may be hundreds of metres off."""
    try:
        transformer = _transformer_from(system.to_wkt())
    except ProjError:
        raise InputUnreadable(f"{name} is in a reference system without a known way to WGS 84") from None

    def convert(coordinates: Floats) -> Floats:
        if transformer is not None:
            coordinates = np.column_stack(transformer.transform(coordinates[:, 0], coordinates[:, 1]))
        return round_coordinates(coordinates)

    converted: Shapes = shapely.transform(shapes, convert)
    return converted


def round_coordinates(coordinates: Floats) -> Floats:
    rounded: Floats = np.round(coordinates, DECIMALS) + 0.0  # there is one zero
    return rounded


@cache
def _transformer_from(system: str) -> pyproj.Transformer | None:
    """Returns None for WGS 84 itself."""
    set_network_enabled(active=False)  # with other grids the same file would give other bytes
    source, target = pyproj.CRS.from_wkt(system), pyproj.CRS.from_user_input(WGS84)
    if source.equals(target, ignore_axis_order=True):
        return None
    return pyproj.Transformer.from_crs(source, target, always_xy=True, allow_ballpark=False)
