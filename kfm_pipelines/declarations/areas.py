"""Areas of interest: one GeoJSON feature each in resources/aois/, named by `key.aoi` of a dataset."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kfm_pipelines.errors import DeclarationInvalid

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry


@dataclass(frozen=True, slots=True)
class Area:
    """A polygon in degrees, or several."""

    name: str
    shape: "BaseGeometry" = field(repr=False)
    digest: str = ""  # of the file


def area_path(resources: Path, name: str) -> Path:
    return resources / "aois" / f"{name}.geojson"


def load_area(resources: Path, name: str) -> Area:
    """Raises DeclarationInvalid if there is no such area, or it is not a valid polygon."""
    import shapely
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    path = area_path(resources, name)
    try:
        data = path.read_bytes()
        geometry = shape(json.loads(data)["geometry"])
    except OSError:
        known = ", ".join(sorted(one.stem for one in path.parent.glob("*.geojson"))) or "none"
        raise DeclarationInvalid(
            f"key.aoi: there is no area {name!r}: resources/aois/{path.name} is missing; there are: {known}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, ShapelyError):
        raise DeclarationInvalid(f"{path.name}: must be a GeoJSON feature with a polygon") from None
    if geometry.geom_type not in ("Polygon", "MultiPolygon") or not geometry.is_valid or geometry.is_empty:
        raise DeclarationInvalid(f"{path.name}: must be a GeoJSON feature with a valid polygon")
    shapely.prepare(geometry)
    return Area(name, geometry, hashlib.sha256(data).hexdigest())
