"""Places in systems other than degrees: UTM in metres, geohash, and the zones and bands of MGRS."""

from collections.abc import Iterator

import numpy as np
from pyproj import Proj

from kfm_pipelines.care.verifier.types import Floats, Numbers
from kfm_pipelines.declarations import Extent

GEOHASH_ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz"
GEOHASH_LENGTH = 5  # letters; a box of five kilometres
_GEOHASH_BITS = (13, 12)  # of longitude and latitude in five letters
_BANDS = "CDEFGHJKLMNPQRSTUVWX"  # of eight degrees each, from 80° south


def utm(longitudes: Floats, latitudes: Floats, extent: Extent) -> Iterator[tuple[Floats, Floats]]:
    """Yields eastings and northings with each place in its own zone, then with all in the extent's central zone."""
    middle = _zones(np.array([(extent.west + extent.east) / 2]))[0]
    yield _project_utm(longitudes, latitudes, _zones(longitudes))
    yield _project_utm(longitudes, latitudes, np.full(len(longitudes), middle))


def geohashes(longitudes: Floats, latitudes: Floats) -> Numbers:
    """Returns the first five letters of each geohash as a number."""
    wide, high = _GEOHASH_BITS
    x = np.clip((longitudes + 180) / 360 * 2**wide, 0, 2**wide - 1).astype(np.int64)
    y = np.clip((latitudes + 90) / 180 * 2**high, 0, 2**high - 1).astype(np.int64)
    codes = np.zeros(len(longitudes), np.int64)
    for bit in range(wide):
        codes |= ((x >> bit) & 1) << (2 * bit)
        codes |= ((y >> bit) & 1) << (2 * bit + 1)
    return codes


def geohash_number(letters: str) -> int:
    number = 0
    for letter in letters[:GEOHASH_LENGTH]:
        number = number * 32 + GEOHASH_ALPHABET.index(letter)
    return number


def mgrs_squares(extent: Extent) -> set[tuple[int, str]]:
    """Returns the zones and bands of MGRS that overlap the extent."""
    zones = range(_zone(extent.west), _zone(extent.east) + 1)
    bands = _BANDS[_band(extent.south) : _band(extent.north) + 1]
    return {(zone, band) for zone in zones for band in bands}


def _zone(longitude: float) -> int:
    return min(int((longitude + 180) // 6) + 1, 60)


def _band(latitude: float) -> int:
    return min(max(int((latitude + 80) // 8), 0), len(_BANDS) - 1)


def _zones(longitudes: Floats) -> Numbers:
    zones: Numbers = np.clip((longitudes + 180) // 6 + 1, 1, 60).astype(np.int64)
    return zones


def _project_utm(longitudes: Floats, latitudes: Floats, zones: Numbers) -> tuple[Floats, Floats]:
    eastings, northings = np.full(len(zones), np.nan), np.full(len(zones), np.nan)
    for zone in np.unique(zones).tolist():
        mine = zones == zone
        grid = Proj(proj="utm", zone=zone, ellps="WGS84")
        eastings[mine], northings[mine] = grid(longitudes[mine], latitudes[mine])
    return eastings, np.where(northings < 0, northings + 10_000_000, northings)
