"""Decides whether two columns of numbers agree more than by accident."""

import math

import numpy as np

from kfm_pipelines.care.verifier.types import Flags, Floats

_MIN_HITS = 5
_MIN_DISTINCT_VALUES = 3  # all rows of one spot may share one value that happens to be near
_MAX_PROBABILITY = 1e-9  # each column is compared hundreds of times
_MIN_DISTINCT_RANKS = 20
_MIN_RANK_CORRELATION = 0.95


def values_match_places(values: Floats, places: Floats, tolerance: float) -> bool:
    """Whether significantly many values are near the place of their own row. Also checks the distinct ones alone, since
    many rows of one spot may share one harmless value."""
    near = np.abs(values - places) <= tolerance
    if near.sum() < _MIN_HITS:
        return False
    ordered, once = np.sort(places), np.unique(values, return_index=True)[1]
    several = near[once].sum()
    if near.mean() >= 0.5 and several >= _MIN_DISTINCT_VALUES and _is_significant(near, values, ordered, tolerance):
        return True
    return bool(several >= _MIN_HITS) and _is_significant(near[once], values[once], ordered, tolerance)


def are_rank_correlated(values: Floats, places: Floats) -> bool:
    """Whether sorting by one sorts by the other, in either direction."""
    ranks = [_average_ranks(values), _average_ranks(places)]
    if min(len(np.unique(rank)) for rank in ranks) < _MIN_DISTINCT_RANKS:
        return False
    return bool(abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) > _MIN_RANK_CORRELATION)


def _is_significant(near: Flags, values: Floats, ordered: Floats, tolerance: float) -> bool:
    """Applies Chernoff's bound, assuming that values hit their own place no more often than others' places."""
    hits, chance = float(near.mean()), _hit_probability(int(near.sum()), values, ordered, tolerance)
    if hits <= chance:
        return False
    distance = hits * math.log(hits / chance)
    if hits < 1.0:
        distance += (1 - hits) * math.log((1 - hits) / (1 - chance))
    return len(near) * distance > -math.log(_MAX_PROBABILITY)


def _hit_probability(own: int, values: Floats, ordered: Floats, tolerance: float) -> float:
    """Returns how often a value is near the place of another row, but no less than for evenly spread places."""
    met = np.searchsorted(ordered, values + tolerance, "right") - np.searchsorted(ordered, values - tolerance, "left")
    others = max(len(values) * (len(ordered) - 1), 1)
    spread = float(ordered[-1] - ordered[0])
    even = 2 * tolerance / spread if spread > 0 else 1.0
    return min(max(float(met.sum() - own) / others, even), 1.0)


def _average_ranks(values: Floats) -> Floats:
    """Gives equal values the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles: Floats = np.cumsum(counts) - (counts - 1) / 2
    return middles[which]
