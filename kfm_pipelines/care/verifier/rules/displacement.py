"""Rules on displaced points: distances in the ring, no guessable pattern, and one move per feature."""

from collections.abc import Iterator

import numpy as np
import shapely
from pyproj import Geod

from kfm_pipelines.care.rules import Displace
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.types import Degrees, Numbers

Moves = tuple[Degrees, Degrees]  # bearings in degrees, distances in metres


_MIN_MOVES_FOR_PATTERN = 20
_MIN_MOVES = 3
_MAX_PROBABILITY = 1e-7
_SAME_OFFSET_TOLERANCE = 5e-4  # fraction of the largest move allowed
_METRES_IN_A_DEGREE = 111_320.0


def distances_are_in_the_ring(case: Case) -> Iterator[Breach]:
    for scope, rule in _displaced_scopes(case):
        _, distances = _measure_moves(case, scope)
        outside = int((~((distances >= rule.min_m - 1e-6) & (distances <= rule.max_m + 1e-6))).sum())
        if outside:
            expected = f"from {rule.min_m:g} to {rule.max_m:g} m"
            yield Breach("displacement-distance", scope.name, expected, f"{outside} records moved otherwise")


def moves_have_no_pattern(case: Case) -> Iterator[Breach]:
    """A shared bearing or distance, or moves along the axes, can be undone without the secret."""
    for scope, rule in _displaced_scopes(case):
        moved = np.isfinite(_measure_moves(case, scope)[1])
        first = np.unique(np.where(moved, case.origins.features[scope.link_rows], -1), return_index=True)[1]
        first = first[moved[first]]
        bearings, distances = (values[first] for values in _measure_moves(case, scope))
        few = len(first) < _MIN_MOVES_FOR_PATTERN
        if (
            _have_same_bearing(bearings)
            or _have_same_offset(case, scope, rule, first)
            or (not few and _have_pattern(bearings, distances, rule))
        ):
            yield Breach("displacement-pattern", scope.name, "bearings and distances all over the ring", "a pattern")


def _have_same_bearing(bearings: Degrees) -> bool:
    """Whether all bearings are closer to the first than would happen by accident once in ten million times."""
    if len(bearings) < _MIN_MOVES:
        return False
    deviations = np.abs((bearings[1:] - bearings[0] + 180) % 360 - 180)
    return bool((deviations <= 180 * _MAX_PROBABILITY ** (1 / len(deviations))).all())


def _have_same_offset(case: Case, scope: RuleScope, rule: Displace, first: Numbers) -> bool:
    """Compares offsets in degrees, which give different bearings at different places."""
    if len(first) < _MIN_MOVES:
        return False
    rows, (longitudes, latitudes) = scope.link_rows[first], _published_points(case, scope)
    east = (longitudes[first] - case.origins.longitudes[rows]) * np.cos(np.radians(case.origins.latitudes[rows[0]]))
    north = latitudes[first] - case.origins.latitudes[rows]
    return bool(max(np.ptp(east), np.ptp(north)) * _METRES_IN_A_DEGREE <= _SAME_OFFSET_TOLERANCE * rule.max_m)


def _have_pattern(bearings: Degrees, distances: Degrees, rule: Displace) -> bool:
    together = abs(np.exp(1j * np.radians(bearings)).mean()) > 0.9
    from_axis = np.abs((bearings + 45) % 90 - 45)
    narrow = np.ptp(distances) < 0.05 * (rule.max_m - rule.min_m)
    return bool(together or np.mean(from_axis < 0.1) > 0.5 or narrow)


def features_move_as_one(case: Case) -> Iterator[Breach]:
    """Two moves of one place narrow down where it is."""
    for scope, _ in _displaced_scopes(case):
        features = case.origins.features[scope.link_rows]
        order = np.argsort(features, kind="stable")
        bearings, distances = (values[order] for values in _measure_moves(case, scope))
        same = np.diff(features[order]) == 0
        deviations = np.abs((np.diff(bearings) + 180) % 360 - 180)
        differ = int((same & ~((deviations < 1e-4) & (np.abs(np.diff(distances)) < 0.01))).sum())
        if differ:
            yield Breach("displacement-feature", scope.name, "one move for each feature", f"{differ} records more")


def _displaced_scopes(case: Case) -> Iterator[tuple[RuleScope, Displace]]:
    for scope in case.scopes:
        if isinstance(scope.rule, Displace):
            yield scope, scope.rule


def _measure_moves(case: Case, scope: RuleScope) -> Moves:
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


def _published_points(case: Case, scope: RuleScope) -> tuple[Degrees, Degrees]:
    if case.longitude is not None and case.latitude is not None:
        longitudes, latitudes = (
            case.values(name, scope.link_records).to_numpy(zero_copy_only=False)
            for name in (case.longitude, case.latitude)
        )
        return longitudes, latitudes
    if case.geometry is None:
        raise TypeError("a dataset without a place column has nothing to displace")
    values = case.values(case.geometry, scope.link_records).to_numpy(zero_copy_only=False)
    points = shapely.from_wkb(values, on_invalid="ignore")
    return shapely.get_x(points), shapely.get_y(points)


RULES = (distances_are_in_the_ring, moves_have_no_pattern, features_move_as_one)
