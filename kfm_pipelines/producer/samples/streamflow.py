"""Streamflow: the gauges are real places, rounded; every reading is invented."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.sample import seeded_random, to_parquet

if TYPE_CHECKING:
    import pyarrow as pa

READING_INTERVAL = timedelta(minutes=15)
STORM_INTERVAL_HOURS = 9 * 24


@dataclass(frozen=True, slots=True)
class Gauge:
    """One stream gauge: where it is, its usual flow, and its rating curve (flow = scale · (height − zero) ^ 1.7)."""

    site_no: str
    name: str
    latitude: float
    longitude: float
    base_cfs: float
    zero_ft: float
    scale: float


GAUGES = (
    Gauge("06866500", "Smoky Hill River near Mentor, KS", 38.798, -97.574, 310.0, 4.1, 58.0),
    Gauge("06869500", "Saline River at Tescott, KS", 39.004, -97.874, 120.0, 3.2, 31.0),
    Gauge("06876900", "Solomon River at Niles, KS", 38.969, -97.477, 260.0, 5.6, 47.0),
    Gauge("06879100", "Kansas River at Fort Riley, KS", 39.061, -96.766, 1450.0, 4.4, 190.0),
    Gauge("06884400", "Little Blue River near Barnes, KS", 39.776, -96.858, 340.0, 2.9, 62.0),
    Gauge("06885500", "Black Vermillion River near Frankfort, KS", 39.683, -96.443, 55.0, 3.7, 18.0),
    Gauge("06887500", "Kansas River at Wamego, KS", 39.198, -96.305, 2900.0, 3.1, 310.0),
    Gauge("06889000", "Kansas River at Topeka, KS", 39.067, -95.649, 3300.0, 5.0, 340.0),
    Gauge("06892350", "Kansas River at De Soto, KS", 38.983, -94.965, 4100.0, 6.2, 380.0),
    Gauge("06913500", "Marais des Cygnes River near Ottawa, KS", 38.617, -95.269, 420.0, 2.4, 70.0),
    Gauge("07139000", "Arkansas River at Garden City, KS", 37.956, -100.877, 14.0, 1.8, 9.0),
    Gauge("07144300", "Arkansas River at Wichita, KS", 37.643, -97.335, 610.0, 1.5, 120.0),
    Gauge("07146500", "Arkansas River at Arkansas City, KS", 37.056, -97.059, 1250.0, 4.7, 170.0),
    Gauge("07147800", "Walnut River at Winfield, KS", 37.224, -96.994, 480.0, 6.9, 74.0),
    Gauge("07151500", "Chikaskia River near Corbin, KS", 37.129, -97.601, 95.0, 2.2, 26.0),
    Gauge("07157500", "Crooked Creek near Englewood, KS", 37.031, -100.208, 6.0, 2.6, 5.0),
    Gauge("07183500", "Neosho River near Parsons, KS", 37.340, -95.110, 1750.0, 7.3, 210.0),
)


@dataclass(frozen=True, slots=True)
class Reading:
    discharge_cfs: float | None
    gage_height_ft: float | None
    qualifier: str


def streamflow_table(window_start: datetime, *, seed: int = 0) -> "pa.Table":
    """Every gauge's readings of the hour that begins at window_start, in the declared columns."""
    import pyarrow as pa

    start = window_of(window_start, "hour").start
    instants = [start + step * READING_INTERVAL for step in range(4)]
    observed = [(gauge, instant, reading_of(gauge, instant, seed)) for gauge in GAUGES for instant in instants]
    columns = {
        "site_no": pa.array([gauge.site_no for gauge, _, _ in observed], pa.string()),
        "site_name": pa.array([gauge.name for gauge, _, _ in observed], pa.string()),
        "latitude": pa.array([gauge.latitude for gauge, _, _ in observed], pa.float64()),
        "longitude": pa.array([gauge.longitude for gauge, _, _ in observed], pa.float64()),
        "observed_at": pa.array([instant for _, instant, _ in observed], pa.timestamp("us", tz="UTC")),
        "discharge_cfs": pa.array([reading.discharge_cfs for _, _, reading in observed], pa.float64()),
        "gage_height_ft": pa.array([reading.gage_height_ft for _, _, reading in observed], pa.float64()),
        "qualifier": pa.array([reading.qualifier for _, _, reading in observed], pa.string()),
    }
    return pa.table(columns)


def streamflow_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    start = window_of(window_start, "hour").start
    key = f"usgs/streamflow/{start:%Y/%m/%d/%H}/streamflow-{start:%Y%m%dT%H}Z.parquet"
    return key, to_parquet(streamflow_table(start, seed=seed))


def reading_of(gauge: Gauge, instant: datetime, seed: int) -> Reading:
    chance = seeded_random(seed, gauge.site_no, instant.isoformat())
    discharge = _discharge(gauge, instant) * chance.uniform(0.985, 1.015)
    height = gauge.zero_ft + (discharge / gauge.scale) ** (1 / 1.7)
    # A gauge without a stage has its flow estimated; a frozen one reports a stage but no flow.
    lost_height, lost_flow = chance.random() < 0.02, chance.random() < 0.02
    settled = "A" if chance.random() < 0.1 else "P"
    return Reading(
        discharge_cfs=None if lost_flow else float(f"{discharge:.3g}"),
        gage_height_ft=None if lost_height else round(height, 2),
        qualifier="e" if lost_height else settled,
    )


def _discharge(gauge: Gauge, instant: datetime) -> float:
    """Base flow, a daily cycle that peaks at dawn, and a storm every nine days."""
    hours = (instant - datetime(2000, 1, 1, tzinfo=UTC)) / timedelta(hours=1)
    daily = 1 + 0.06 * math.cos((hours - 11) / 24 * 2 * math.pi)
    # Storms cross Kansas from west to east, about five hours a degree.
    since_storm = (hours - (gauge.longitude + 102.05) * 5) % STORM_INTERVAL_HOURS
    rise_hours = 7
    storm = 3.5 * since_storm / rise_hours * math.exp(1 - since_storm / rise_hours)
    return gauge.base_cfs * (daily + storm)
