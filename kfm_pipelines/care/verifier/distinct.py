"""Different values, and how many of them: by sorting, which for millions of them is faster than hashing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


def distinct(values: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    """Sorted."""
    import numpy as np

    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def without(values: "npt.NDArray[Any]", others: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    """Those that are not among the others; both are sorted."""
    return values[~is_among(values, others)]


def is_among(values: "npt.NDArray[Any]", ordered: "npt.NDArray[Any]") -> "npt.NDArray[np.bool_]":
    import numpy as np

    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    found: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def count_distinct(groups: "Numbers", features: "Numbers", number: int) -> "Numbers":
    """How many features each of `number` groups has; the arrays say which feature is in which group."""
    import numpy as np

    width = int(features.max(initial=0)) + 1
    pairs = distinct(groups.astype(np.int64) * width + features)  # one number sorts faster than two
    return np.bincount(pairs // width, minlength=number)
