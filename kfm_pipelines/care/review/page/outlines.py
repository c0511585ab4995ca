"""Outlines of areas of interest, so that a reader knows where the map is."""

import json
from pathlib import Path

from kfm_pipelines.errors import DeclarationInvalid


def load_outline(resources: Path, aoi: str) -> tuple[tuple[float, float], ...]:
    """Longitude and latitude of each corner; nothing for an area nobody has drawn."""
    path = resources / "aois" / f"{aoi}.geojson"
    if not path.is_file():
        return ()
    try:
        [ring] = json.loads(path.read_bytes())["geometry"]["coordinates"]
        return tuple((float(longitude), float(latitude)) for longitude, latitude in ring)
    except (KeyError, TypeError, ValueError):
        raise DeclarationInvalid(f"{path.name}: must be a GeoJSON feature with a polygon of one ring") from None
