"""Displacement cannot be undone without the secret, nor with many releases."""

import hashlib
import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyproj
import pytest

from kfm_pipelines.care.masks.displacement import derive_offsets
from kfm_pipelines.care.rules import Displace
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines_tests.fixtures.care.sites_to_mask import SECRET, displace, mask, scattered, sites

GEOD = pyproj.Geod(ellps="WGS84")
RULES = {"generalised": displace(2000, 5000)}
RULE = Displace(method="displace", min_m=2000, max_m=5000, reason="to test it")
# 36 bins have 35 degrees of freedom: more than this happens once in ten thousand times.
CHI_SQUARE_LIMIT = 74.9

Floats = npt.NDArray[np.float64]


def released(count: int = 400, *, secret: bytes = SECRET, version: int = 1) -> tuple[Floats, Floats]:
    """Returns the published coordinates in the order of the input."""
    masked = mask(sites(*scattered(count)), RULES, secret=secret, version=version)
    record = masked.crosswalk.sort_by("row").column("record").to_numpy() - 1
    table = masked.table
    return table.column("longitude").to_numpy()[record], table.column("latitude").to_numpy()[record]


def offsets_of(ids: list[str], secret: bytes = SECRET, policy: str = "heritage-sites") -> tuple[Floats, Floats]:
    return derive_offsets(secret, policy, [pa.array(ids)], RULE)


IDS = [f"INVENTED-{number}" for number in range(20_000)]


def chi_square(shares: Floats) -> float:
    counts = np.bincount((shares * 36).astype(int), minlength=36)
    expected = len(shares) / 36
    return float(((counts - expected) ** 2 / expected).sum())


def test_every_point_moves_by_a_distance_in_the_ring() -> None:
    longitudes, latitudes = scattered(3000)
    there = released(3000)
    _, _, distances = GEOD.inv(longitudes, latitudes, *there)
    assert distances.min() >= 2000
    assert distances.max() <= 5000
    assert (distances.min() < 2050, distances.max() > 4950) == (True, True)


@pytest.mark.parametrize(("share", "distance"), [(b"\x00" * 8, 2000), (b"\xff" * 8, 5000)])
def test_extreme_draws_stay_in_the_ring(share: bytes, distance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmac.digest", lambda *_: bytes(8) + share + bytes(16))
    longitudes, latitudes = scattered(500)
    _, _, distances = GEOD.inv(longitudes, latitudes, *released(500))
    assert ((distances >= 2000) & (distances <= 5000)).all()
    assert np.allclose(distances, distance, atol=0.01)


def test_the_angle_is_uniform() -> None:
    angles, _ = offsets_of(IDS)
    assert ((angles >= 0) & (angles < 360)).all()
    assert chi_square(angles / 360) < CHI_SQUARE_LIMIT


def test_the_published_bearing_is_uniform() -> None:
    longitudes, latitudes = scattered(10_000)
    bearings, _, _ = GEOD.inv(longitudes, latitudes, *released(10_000))
    assert chi_square(bearings % 360 / 360) < CHI_SQUARE_LIMIT


def test_the_distance_is_uniform_over_the_area() -> None:
    _, distances = offsets_of(IDS)
    assert chi_square((distances**2 - 2000**2) / (5000**2 - 2000**2)) < CHI_SQUARE_LIMIT


def test_angle_and_distance_are_independent() -> None:
    angles, distances = offsets_of(IDS)
    assert abs(np.corrcoef(angles, distances**2)[0, 1]) < 4 / math.sqrt(len(IDS))


def test_averaging_many_releases_gains_nothing() -> None:
    releases = [released(50, version=version) for version in range(1, 31)]
    longitudes = np.array([one[0] for one in releases])
    latitudes = np.array([one[1] for one in releases])
    assert (longitudes == longitudes[0]).all()
    assert (latitudes == latitudes[0]).all()
    true = scattered(50)
    _, _, distances = GEOD.inv(*true, longitudes.mean(axis=0), latitudes.mean(axis=0))
    assert distances.min() > 1999.99


def test_another_secret_moves_every_point_elsewhere() -> None:
    one, other = released(), released(secret=b"another secret, just as invented")
    _, _, apart = GEOD.inv(*one, *other)
    assert apart.min() > 1


def test_no_offset_can_be_derived_without_the_secret() -> None:
    ids = IDS[:200]
    angles, _ = offsets_of(ids)
    guesses = [offsets_of(ids, secret=guess)[0] for guess in (b"", b"\x00" * 32, b"heritage-sites", SECRET[:-1])]
    hashed = [int.from_bytes(hashlib.sha256(one.encode()).digest()[:8], "big") / 2**64 * 360 for one in ids]
    for guess in [*guesses, np.array(hashed)]:
        assert np.abs(angles - guess).min() > 1e-4


@pytest.mark.parametrize("secret", [b"", b"fifteen bytes.."])
def test_a_secret_that_is_too_short_refuses_the_release(secret: bytes) -> None:
    with pytest.raises(PolicyRefused, match=r"^the displacement secret must have at least 16 bytes$"):
        released(secret=secret)


def test_another_policy_with_the_same_secret_moves_elsewhere() -> None:
    assert np.abs(offsets_of(IDS[:200])[0] - offsets_of(IDS[:200], policy="other-sites")[0]).min() > 1e-4


def test_ids_of_several_parts_are_not_confused() -> None:
    one = derive_offsets(SECRET, "p", [pa.array(["ab"]), pa.array(["c"])], RULE)
    other = derive_offsets(SECRET, "p", [pa.array(["a"]), pa.array(["bc"])], RULE)
    assert one[0] != other[0]


def test_all_records_of_a_feature_move_together() -> None:
    longitudes, latitudes = np.array([-98.0, -98.0, -97.0]), np.array([38.0, 38.0, 38.0])
    masked = mask(sites(longitudes, latitudes, site_id=["A", "A", "A"], condition=["a", "b", "c"]), RULES)
    record = masked.crosswalk.sort_by("row").column("record").to_numpy() - 1
    there = masked.table.column("longitude").to_numpy()[record], masked.table.column("latitude").to_numpy()[record]
    bearings, _, distances = GEOD.inv(longitudes, latitudes, *there)
    assert np.allclose(bearings, bearings[0], atol=1e-9)
    assert np.allclose(distances, distances[0], atol=1e-6)


def test_a_moved_point_has_an_uncertainty_and_no_cell() -> None:
    [row] = mask(sites([-98.0], [38.0]), RULES).table.to_pylist()
    assert (row["cell"], row["uncertainty_m"], row["records"]) == (None, 5000.0, 1)
