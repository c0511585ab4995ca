"""Displaced points: far enough, not too far, in no direction anyone could guess, and a feature always the same way."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.care.rules import Displace
from kfm_pipelines.care.verifier.case import Case, Share
from kfm_pipelines.care.verifier.evidence import Breach

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Degrees = npt.NDArray[np.float64]
    Moves = tuple[Degrees, Degrees]  # bearings in degrees, distances in metres

_ENOUGH_TO_SEE_A_PATTERN = 20


def distances_are_in_the_ring(case: Case) -> Iterator[Breach]:
    for share, rule in _displaced(case):
        _, distances = _moves(case, share)
        outside = int((~((distances >= rule.min_m - 1e-6) & (distances <= rule.max_m + 1e-6))).sum())
        if outside:
            expected = f"from {rule.min_m:g} to {rule.max_m:g} m"
            yield Breach("displacement-distance", share.name, expected, f"{outside} records moved otherwise")


def moves_have_no_pattern(case: Case) -> Iterator[Breach]:
    """The same bearing or distance for all, or moves along the axes, can be taken back without the secret."""
    import numpy as np

    for share, rule in _displaced(case):
        first = np.unique(case.origins.features[share.link_rows], return_index=True)[1]
        bearings, distances = (values[first] for values in _moves(case, share))
        if len(first) < _ENOUGH_TO_SEE_A_PATTERN:
            continue
        together = abs(np.exp(1j * np.radians(bearings)).mean()) > 0.9
        from_axis = np.abs((bearings + 45) % 90 - 45)
        narrow = np.ptp(distances) < 0.05 * (rule.max_m - rule.min_m)
        if together or np.mean(from_axis < 0.1) > 0.5 or narrow:
            yield Breach("displacement-pattern", share.name, "bearings and distances all over the ring", "a pattern")


def features_move_as_one(case: Case) -> Iterator[Breach]:
    """Two moves of one place show where they came from."""
    import numpy as np

    for share, _ in _displaced(case):
        features = case.origins.features[share.link_rows]
        order = np.argsort(features, kind="stable")
        bearings, distances = (values[order] for values in _moves(case, share))
        same = np.diff(features[order]) == 0
        turned = np.abs((np.diff(bearings) + 180) % 360 - 180)
        differ = int((same & ~((turned < 1e-4) & (np.abs(np.diff(distances)) < 0.01))).sum())
        if differ:
            yield Breach("displacement-feature", share.name, "one move for each feature", f"{differ} records more")


def _displaced(case: Case) -> Iterator[tuple[Share, Displace]]:
    for share in case.shares:
        if isinstance(share.rule, Displace):
            yield share, share.rule


def _moves(case: Case, share: Share) -> "Moves":
    import numpy as np
    from pyproj import Geod

    longitudes, latitudes = _published(case, share)
    known = np.isfinite(longitudes) & np.isfinite(latitudes)
    rows = share.link_rows
    bearings, _, distances = Geod(ellps="WGS84").inv(
        case.origins.longitudes[rows],
        case.origins.latitudes[rows],
        np.where(known, longitudes, 0.0),
        np.where(known, latitudes, 0.0),
    )
    return np.asarray(bearings), np.where(known, distances, np.nan)


def _published(case: Case, share: Share) -> "tuple[Degrees, Degrees]":
    import shapely

    if case.longitude is not None and case.latitude is not None:
        longitudes, latitudes = (
            case.values(name, share.link_records).to_numpy(zero_copy_only=False)
            for name in (case.longitude, case.latitude)
        )
        return longitudes, latitudes
    if case.geometry is None:
        raise TypeError("a dataset without a place has nothing to displace")
    values = case.values(case.geometry, share.link_records).to_numpy(zero_copy_only=False)
    points = shapely.from_wkb(values, on_invalid="ignore")
    return shapely.get_x(points), shapely.get_y(points)


RULES = (distances_are_in_the_ring, moves_have_no_pattern, features_move_as_one)
