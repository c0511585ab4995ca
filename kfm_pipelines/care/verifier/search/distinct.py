"""Distinct values and their counts, by sorting, which for millions of values is faster than hashing."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kfm_pipelines.care.verifier.types import Flags, Numbers

_MAX_SPARSENESS = 64  # a flag takes a byte and is written once, a number eight and is moved many times


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the distinct values, sorted."""
    if _are_positions(values):
        return np.flatnonzero(_flags_at(values))
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _are_positions(values: npt.NDArray[Any]) -> bool:
    """Whether these are whole numbers of a range so small that marking them is faster than sorting."""
    whole = np.issubdtype(values.dtype, np.integer)
    return bool(len(values) and whole and values.min() >= 0 and values.max() < _MAX_SPARSENESS * len(values))


def _flags_at(positions: Numbers) -> Flags:
    flags = np.zeros(int(positions.max(initial=-1)) + 1, np.bool_)
    flags[positions] = True
    return flags


def without(values: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the values that are not among the others; both are sorted."""
    return values[~is_among(values, others)]


def is_among(values: npt.NDArray[Any], ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    found: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def count_distinct(groups: Numbers, features: Numbers, number: int) -> Numbers:
    """Returns the number of distinct features in each of `number` groups."""
    if _are_positions(features) and np.count_nonzero(_flags_at(features)) == len(features):
        return np.bincount(groups, minlength=number)
    width = int(features.max(initial=0)) + 1
    pairs = distinct(groups.astype(np.int64) * width + features)  # one number sorts faster than two
    return np.bincount(pairs // width, minlength=number)
