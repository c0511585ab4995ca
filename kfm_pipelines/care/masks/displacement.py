"""Displaces each feature by an offset derived from the secret: a new one in each release could be averaged away."""

import hmac
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyproj import Geod

from kfm_pipelines.care.masks.types import Floats
from kfm_pipelines.care.rules import Displace

Draws = NDArray[np.uint64]

_HMAC_PURPOSE = "kfm-displace-1"
_INSET_M = 0.001  # far more than rounding can change a distance by


def derive_offsets(secret: bytes, policy: str, ids: list[pa.Array], rule: Displace) -> tuple[Floats, Floats]:
    """Returns degrees clockwise from north and metres for each feature, uniform over the area of the ring."""
    texts = [_as_text(column) for column in ids]
    digests = b"".join(hmac.digest(secret, _message(policy, parts), "sha256") for parts in zip(*texts, strict=True))
    # A float64 holds 53 bits.
    shares = (np.frombuffer(digests, ">u8").reshape(-1, 4)[:, :2] >> 11).astype(np.float64) * 2.0**-53
    inset = min(_INSET_M, (rule.max_m - rule.min_m) / 1000)
    inner, outer = rule.min_m + inset, rule.max_m - inset
    return 360 * shares[:, 0], np.sqrt(inner**2 + shares[:, 1] * (outer**2 - inner**2))


def displace_points(longitudes: Floats, latitudes: Floats, angles: Floats, distances: Floats) -> tuple[Floats, Floats]:
    there = Geod(ellps="WGS84").fwd(longitudes, latitudes, angles, distances)
    return np.asarray(there[0], np.float64), np.asarray(there[1], np.float64)


def _message(policy: str, parts: Iterable[str]) -> bytes:
    """Prefixes each part with its length, so that no two lists of parts give the same bytes."""
    encoded = [part.encode() for part in (_HMAC_PURPOSE, policy, *parts)]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


def _as_text(column: pa.Array) -> list[str]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    texts: list[str] = column.cast(pa.string()).to_pylist()
    return texts


def mix_bits(numbers: Draws) -> Draws:
    """Mixes bits one to one, with the finaliser of SplitMix64."""
    spread = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return spread ^ (spread >> np.uint64(31))


def hash_coordinates(longitudes: Floats, latitudes: Floats) -> Draws:
    bits = (np.ascontiguousarray(degrees).view(np.uint64) for degrees in (longitudes, latitudes))
    return mix_bits(next(bits)) ^ next(bits)
