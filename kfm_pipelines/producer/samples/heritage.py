"""Heritage sites: a synthetic register of clusters, some small, so that masking suppresses something."""

import random
from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from typing import TYPE_CHECKING

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.sample import seeded_random, to_parquet

if TYPE_CHECKING:
    import pyarrow as pa

# Permanent sites by cluster.
CLUSTERS = (24,) * 8 + (8,) * 5 + (2,) * 7 + (1, 1)
ROTATING_SITES, ROTATION_MONTHS = 24, 12  # half of these are listed at a time
SPREAD_KM = 2.5
KM_PER_DEGREE = 111.2
UTM_14N = "EPSG:32614"

CLASSES = {"generalised": 60, "restricted": 30, "withheld": 10}
TYPES = ("settlement", "earthwork", "quarry", "camp", "trail", "burial place")
OWNERS = ("private", "county", "state", "federal", "tribal", None)
PERIODS = ("before contact", "contact", "territorial", "unknown")
CONDITIONS = ("good", "fair", "poor", None)
BEARINGS = ("north", "east", "south", "west")


@dataclass(frozen=True, slots=True)
class Site:
    """One synthetic site; its attributes stay the same from month to month."""

    number: int
    latitude: float
    longitude: float
    sensitivity: str
    site_type: str
    land_owner: str | None
    period: str
    condition: str | None
    directions: str | None

    def is_listed_in(self, month: int) -> bool:
        """`month` counts from the year 0."""
        offset = self.number - sum(CLUSTERS)
        return offset <= 0 or (month + offset) % ROTATION_MONTHS < ROTATION_MONTHS // 2


def heritage_table(window_start: datetime, *, seed: int = 0) -> "pa.Table":
    """The register of the month that contains window_start."""
    import pyarrow as pa

    month = window_of(window_start, "month").start
    sites = [site for site in _sites(seed) if site.is_listed_in(month.year * 12 + month.month)]
    eastings, northings = _project_coordinates(sites)
    text, number = pa.string(), pa.float64()
    return pa.table(
        {
            "site_id": pa.array([f"SYN-{site.number:04d}" for site in sites], text),
            "site_name": pa.array([f"Synthetic site {site.number:03d}" for site in sites], text),
            "sensitivity": pa.array([site.sensitivity for site in sites], text),
            "latitude": pa.array([site.latitude for site in sites], number),
            "longitude": pa.array([site.longitude for site in sites], number),
            "easting": pa.array(eastings, number),
            "northing": pa.array(northings, number),
            "directions": pa.array([site.directions for site in sites], text),
            "site_type": pa.array([site.site_type for site in sites], text),
            "land_owner": pa.array([site.land_owner for site in sites], text),
            "period": pa.array([site.period for site in sites], text),
            "condition": pa.array([site.condition for site in sites], text),
            "surveyed_on": pa.array([_survey_date(site, month, seed) for site in sites], pa.date32()),
        }
    )


def heritage_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    month = window_of(window_start, "month").start
    return f"heritage/sites/{month:%Y/%m}/register-01.parquet", to_parquet(heritage_table(month, seed=seed))


@cache
def _sites(seed: int) -> tuple[Site, ...]:
    clusters = [cluster for cluster, size in enumerate(CLUSTERS) for _ in range(size)]
    clusters += [number % len(CLUSTERS) for number in range(ROTATING_SITES)]
    return tuple(_site(number, cluster, seed) for number, cluster in enumerate(clusters, start=1))


def _site(number: int, cluster: int, seed: int) -> Site:
    chance = seeded_random("heritage", seed, "site", number)
    latitude, longitude = _centre(cluster, seed)
    latitude += chance.gauss(0, SPREAD_KM) / KM_PER_DEGREE
    longitude += chance.gauss(0, SPREAD_KM) / (KM_PER_DEGREE * 0.78)  # degrees of longitude are shorter in Kansas
    [sensitivity] = chance.choices(list(CLASSES), weights=list(CLASSES.values()))
    return Site(
        number=number,
        latitude=round(latitude, 6),  # coarse enough to hide rounding differences between machines
        longitude=round(longitude, 6),
        sensitivity=sensitivity,
        site_type=chance.choice(TYPES),
        land_owner=chance.choice(OWNERS),
        period=chance.choice(PERIODS),
        condition=chance.choice(CONDITIONS),
        directions=_directions(chance),
    )


def _centre(cluster: int, seed: int) -> tuple[float, float]:
    """Divides Kansas into 24 squares with one centre in the middle of each, so that clusters stay apart."""
    chance = seeded_random("heritage", seed, "centre", cluster)
    row, column = divmod(cluster, 6)
    return 37.3 + (row + chance.uniform(0.3, 0.7)) * 0.6, -101.6 + (column + chance.uniform(0.3, 0.7)) * 1.05


def _directions(rng: random.Random) -> str | None:
    if rng.random() < 0.2:
        return None
    bearing, metres = rng.choice(BEARINGS), rng.randrange(50, 500, 10)
    return f"{rng.randint(1, 9)} km {bearing} of the made-up crossing, then {metres} m on foot"


def _survey_date(site: Site, month: datetime, seed: int) -> date:
    chance = seeded_random("heritage", seed, "survey", site.number, month.isoformat())
    return date(month.year, month.month, chance.randint(1, monthrange(month.year, month.month)[1]))


def _project_coordinates(sites: "list[Site]") -> tuple[list[float | None], list[float | None]]:
    """Returns eastings and northings; every ninth site has none."""
    from pyproj import Transformer

    to_utm = Transformer.from_crs("EPSG:4326", UTM_14N, always_xy=True)
    found = to_utm.transform([site.longitude for site in sites], [site.latitude for site in sites])
    eastings, northings = (
        [None if site.number % 9 == 0 else round(metres, 1) for site, metres in zip(sites, axis, strict=True)]
        for axis in found
    )
    return eastings, northings
