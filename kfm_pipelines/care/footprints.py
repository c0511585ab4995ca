"""Footprints: the places that rasters must not show, from a restricted folder. Never displayed, never published."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.secrets import keyed_digest
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.services import Services

if TYPE_CHECKING:
    from shapely import Geometry


@dataclass(frozen=True, slots=True)
class Footprints:
    """`digest` is keyed, so that nobody can test a guess of the places against it."""

    shapes: "tuple[Geometry, ...]" = field(repr=False)
    digest: str


def footprints_of(services: Services, policy: Policy, secret: bytes) -> Footprints | None:
    """Returns the footprints that the policy names, read once for a process; None if it names none."""
    if policy.footprints is None:
        return None
    return services.load_once(("footprints", policy.footprints), lambda: _read(services, policy, secret))


def _read(services: Services, policy: Policy, secret: bytes) -> Footprints:
    """Raises PolicyRefused, without a word of the file, unless it is GeoJSON in degrees with at least one place."""
    import shapely
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    folder = services.settings.footprints
    if folder is None:
        raise PolicyRefused(f"policy {policy.name} needs footprints: set KFM_FOOTPRINTS to the folder they are in")
    try:
        data = (folder / f"{policy.footprints}.geojson").read_bytes()
    except OSError:
        raise PolicyRefused(f"the footprints {policy.footprints} cannot be read; nothing is published") from None
    try:
        shapes = tuple(shape(feature["geometry"]) for feature in json.loads(data)["features"])
        bounds = shapely.total_bounds(shapes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ShapelyError):
        shapes, bounds = (), (0.0, 0.0, 0.0, 0.0)
    west, south, east, north = bounds
    in_degrees = -180 <= west <= east <= 180 and -90 <= south <= north <= 90
    if not in_degrees or not all(one.is_valid and not one.is_empty for one in shapes) or not shapes:
        raise PolicyRefused(f"the footprints {policy.footprints} are not GeoJSON features in degrees")
    return Footprints(shapes, keyed_digest(secret, data.decode()))
