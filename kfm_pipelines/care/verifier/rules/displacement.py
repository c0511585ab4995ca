"""Displaced points: far enough, not too far, in no direction anyone could guess, and a feature always the same way."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.care.rules import Displace
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Degrees = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int64]
    Moves = tuple[Degrees, Degrees]  # bearings in degrees, distances in metres

_MIN_MOVES_FOR_PATTERN = 20
_MIN_MOVES = 3
_MAX_PROBABILITY = 1e-7
_SAME_OFFSET_TOLERANCE = 5e-4  # of the farthest that a point may move
_METRES_IN_A_DEGREE = 111_320.0


def distances_are_in_the_ring(case: Case) -> Iterator[Breach]:
    for share, rule in _displaced_scopes(case):
        _, distances = _measure_moves(case, share)
        outside = int((~((distances >= rule.min_m - 1e-6) & (distances <= rule.max_m + 1e-6))).sum())
        if outside:
            expected = f"from {rule.min_m:g} to {rule.max_m:g} m"
            yield Breach("displacement-distance", share.name, expected, f"{outside} records moved otherwise")


def moves_have_no_pattern(case: Case) -> Iterator[Breach]:
    """The same bearing or distance for all, or moves along the axes, can be taken back without the secret."""
    import numpy as np

    for share, rule in _displaced_scopes(case):
        moved = np.isfinite(_measure_moves(case, share)[1])
        first = np.unique(np.where(moved, case.origins.features[share.link_rows], -1), return_index=True)[1]
        first = first[moved[first]]
        bearings, distances = (values[first] for values in _measure_moves(case, share))
        few = len(first) < _MIN_MOVES_FOR_PATTERN
        if (
            _have_same_bearing(bearings)
            or _have_same_offset(case, share, rule, first)
            or (not few and _have_pattern(bearings, distances, rule))
        ):
            yield Breach("displacement-pattern", share.name, "bearings and distances all over the ring", "a pattern")


def _have_same_bearing(bearings: "Degrees") -> bool:
    """Whether all bearings are as close to the first as they would be by accident once in ten million times."""
    import numpy as np

    if len(bearings) < _MIN_MOVES:
        return False
    turned = np.abs((bearings[1:] - bearings[0] + 180) % 360 - 180)
    return bool((turned <= 180 * _MAX_PROBABILITY ** (1 / len(turned))).all())


def _have_same_offset(case: Case, scope: RuleScope, rule: Displace, first: "Numbers") -> bool:
    """The same degrees are another bearing elsewhere; the box is so small that even a thin ring has few such moves."""
    import numpy as np

    if len(first) < _MIN_MOVES:
        return False
    rows, (longitudes, latitudes) = scope.link_rows[first], _published_points(case, scope)
    east = (longitudes[first] - case.origins.longitudes[rows]) * np.cos(np.radians(case.origins.latitudes[rows[0]]))
    north = latitudes[first] - case.origins.latitudes[rows]
    return bool(max(np.ptp(east), np.ptp(north)) * _METRES_IN_A_DEGREE <= _SAME_OFFSET_TOLERANCE * rule.max_m)


def _have_pattern(bearings: "Degrees", distances: "Degrees", rule: Displace) -> bool:
    import numpy as np

    together = abs(np.exp(1j * np.radians(bearings)).mean()) > 0.9
    from_axis = np.abs((bearings + 45) % 90 - 45)
    narrow = np.ptp(distances) < 0.05 * (rule.max_m - rule.min_m)
    return bool(together or np.mean(from_axis < 0.1) > 0.5 or narrow)


def features_move_as_one(case: Case) -> Iterator[Breach]:
    """Two moves of one place show where they came from."""
    import numpy as np

    for share, _ in _displaced_scopes(case):
        features = case.origins.features[share.link_rows]
        order = np.argsort(features, kind="stable")
        bearings, distances = (values[order] for values in _measure_moves(case, share))
        same = np.diff(features[order]) == 0
        turned = np.abs((np.diff(bearings) + 180) % 360 - 180)
        differ = int((same & ~((turned < 1e-4) & (np.abs(np.diff(distances)) < 0.01))).sum())
        if differ:
            yield Breach("displacement-feature", share.name, "one move for each feature", f"{differ} records more")


def _displaced_scopes(case: Case) -> Iterator[tuple[RuleScope, Displace]]:
    for share in case.scopes:
        if isinstance(share.rule, Displace):
            yield share, share.rule


def _measure_moves(case: Case, scope: RuleScope) -> "Moves":
    import numpy as np
    from pyproj import Geod

    longitudes, latitudes = _published_points(case, scope)
    known = np.isfinite(longitudes) & np.isfinite(latitudes)
    rows = scope.link_rows
    bearings, _, distances = Geod(ellps="WGS84").inv(
        case.origins.longitudes[rows],
        case.origins.latitudes[rows],
        np.where(known, longitudes, 0.0),
        np.where(known, latitudes, 0.0),
    )
    return np.asarray(bearings), np.where(known, distances, np.nan)


def _published_points(case: Case, scope: RuleScope) -> "tuple[Degrees, Degrees]":
    import shapely

    if case.longitude is not None and case.latitude is not None:
        longitudes, latitudes = (
            case.values(name, scope.link_records).to_numpy(zero_copy_only=False)
            for name in (case.longitude, case.latitude)
        )
        return longitudes, latitudes
    if case.geometry is None:
        raise TypeError("a dataset without a place has nothing to displace")
    values = case.values(case.geometry, scope.link_records).to_numpy(zero_copy_only=False)
    points = shapely.from_wkb(values, on_invalid="ignore")
    return shapely.get_x(points), shapely.get_y(points)


RULES = (distances_are_in_the_ring, moves_have_no_pattern, features_move_as_one)
