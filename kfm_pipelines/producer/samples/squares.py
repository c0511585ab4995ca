"""Layers of squares over a township: soil map units and parcels of land. All of them are invented."""

import json
import random
from datetime import datetime
from typing import Any

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.sample import seeded_random

SIZE = 12  # squares on each side
WEST, SOUTH, SIDE = -96.62, 38.02, 0.008  # in the Flint Hills; a side is some 700 m
SERIES = ("Florence", "Labette", "Tully", "Irwin", "Clime", "Sogn", "Dwight", "Reading")
SLOPES = (("A", "0 to 1"), ("B", "1 to 3"), ("C", "3 to 7"), ("D", "7 to 12"))
DRAINAGE = ("Well drained", "Moderately well drained", "Somewhat poorly drained")
USES = ("Agricultural", "Residential", "Commercial", "Exempt")


def soils_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    """Returns the survey of a year, as GeoJSON."""
    year = window_of(window_start, "year").start
    features = []
    for row, column, outline in _squares():
        chance = seeded_random(seed, "soil", row // 3, column // 2)  # neighbours often have one soil
        series, (letter, slope) = chance.choice(SERIES), chance.choice(SLOPES)
        properties = {
            "mukey": f"{2_400_000 + SIZE * row + column}",
            "areasymbol": "KS017",
            "muname": f"{series} silty clay loam, {slope} percent slopes",
            "musym": f"{SERIES.index(series) + 4000}{letter}",
            "drainage": chance.choice(DRAINAGE),
            "aws0150": round(chance.uniform(4.0, 30.0), 2),
        }
        features.append(_feature(outline, properties))
    return f"usda/soils/{year:%Y}/ks017.geojson", _collection(features)


def parcels_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    """Returns the roll of a month, as GeoJSON, with owners who do not exist."""
    month = window_of(window_start, "month").start
    features = []
    for row, column, outline in _squares():
        chance = seeded_random(seed, "parcel", row, column)
        number = SIZE * row + column
        properties = {
            "parcel_id": f"017-{number:05d}",
            "land_use": chance.choice(USES),
            "acres": round(chance.uniform(90.0, 160.0), 1),
            "assessed_usd": _assessed(chance, month),
            "owner_name": f"Owner {chance.randint(1, 90):02d}",
            "owner_address": f"{chance.randint(100, 999)} Invented Road",
        }
        features.append(_feature(outline, properties))
    return f"land/parcels/{month:%Y/%m}/roll.geojson", _collection(features)


def _assessed(chance: random.Random, month: datetime) -> int:
    """Rises a little from month to month."""
    return chance.randint(20_000, 400_000) + 25 * (12 * (month.year - 2000) + month.month)


def _squares() -> list[tuple[int, int, list[list[float]]]]:
    found = []
    for row in range(SIZE):
        for column in range(SIZE):
            west, south = round(WEST + column * SIDE, 6), round(SOUTH + row * SIDE, 6)
            east, north = round(west + SIDE, 6), round(south + SIDE, 6)
            found.append((row, column, [[west, south], [east, south], [east, north], [west, north], [west, south]]))
    return found


def _feature(ring: list[list[float]], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": {"type": "Polygon", "coordinates": [ring]}}


def _collection(features: list[dict[str, Any]]) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()
