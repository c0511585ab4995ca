"""Radar scans in the form of NEXRAD Level III: base reflectivity, a degree by a kilometre; the storms are invented."""

import bz2
import struct
from datetime import UTC, datetime

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.sample import seeded_random

PRODUCT, PRODUCT_CODE = "N0Q", 94
RADARS = {"DDC": (37_761, -99_969), "ICT": (37_655, -97_443)}  # latitude and longitude in thousandths of a degree
RADIALS, GATES = 360, 460
LEAST, STEP, LEVELS = -320, 5, 254  # what level 2 means and the step of the levels, in tenths of dBZ; and their number
STORMS = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nexrad_object(window_start: datetime, *, seed: int = 0, radar: str = "DDC") -> tuple[str, bytes]:
    """Returns the scan of a radar in the fifth minute of an hour."""
    taken = window_of(window_start, "hour").start.replace(minute=4, second=10)
    text = f"SDUS53 K{radar} {taken:%d%H%M}\r\r\n{PRODUCT}{radar}\r\r\n"
    return f"{radar}_{PRODUCT}_{taken:%Y_%m_%d_%H_%M_%S}", text.encode() + _message(taken, radar, seed)


def _message(taken: datetime, radar: str, seed: int) -> bytes:
    """Returns header, description and the packed symbols, as the NEXRAD interface document lays them out."""
    symbols = _symbols(taken, radar, seed)
    packed = bz2.compress(symbols)
    day, seconds = (taken - EPOCH).days + 1, (taken - EPOCH).seconds
    latitude, longitude = RADARS[radar]
    header = struct.pack(">HHlLhhH", PRODUCT_CODE, day, seconds, 120 + len(packed), 350, 0, 3)
    place = struct.pack(">hllhh", -1, latitude, longitude, 2600, PRODUCT_CODE)
    scan = struct.pack(">hhhhhlhl", 2, 212, 1, 1, day, seconds, day, seconds)
    angle = struct.pack(">hhhh", 0, 0, 1, 5)
    levels = struct.pack(">3h13h", LEAST, STEP, LEVELS, *[0] * 13)
    packing = struct.pack(">4hhL", 62, 0, 0, 0, 1, len(symbols))
    offsets = struct.pack(">bbLLL", 0, 0, 60, 0, 0)
    return header + place + scan + angle + levels + packing + offsets + packed


def _symbols(taken: datetime, radar: str, seed: int) -> bytes:
    levels = _levels(taken, radar, seed)
    radials = b"".join(struct.pack(">Hhh", GATES, 10 * number, 10) + row for number, row in enumerate(levels))
    packet = struct.pack(">HHHhhhH", 16, 0, GATES, 0, 0, 999, RADIALS) + radials
    layer = struct.pack(">hL", -1, len(packet)) + packet
    return struct.pack(">hhLH", -1, 1, 10 + len(layer), 1) + layer


def _levels(taken: datetime, radar: str, seed: int) -> list[bytes]:
    """Returns the level of each gate of each radial: 0 is nothing, level 2 the least value."""
    import numpy as np

    angle, distance = np.deg2rad(np.arange(RADIALS) + 0.5)[:, None], np.arange(GATES) + 0.5
    east, north = distance * np.sin(angle), distance * np.cos(angle)
    values = np.full((RADIALS, GATES), -np.inf)
    for storm in range(STORMS):
        chance = seeded_random(seed, "scan", radar, storm, taken.isoformat())
        x, y = chance.uniform(-150, 150), chance.uniform(-80, 150)
        size, peak = chance.uniform(10, 45), chance.uniform(25, 62)
        values = np.maximum(values, peak - 25 * ((east - x) ** 2 + (north - y) ** 2) / size**2)
    levels = np.where(values > 0, np.round((10 * values - LEAST) / STEP) + 2, 0)
    return [row.tobytes() for row in levels.astype(np.uint8)]
