"""Whether two columns of numbers go together more than by accident. Knows numbers only, neither places nor rules."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

_FEWEST = 5
_SPOTS = 3  # so many different values: all rows of one spot may share one that happens to be near
_CHANCE = 1e-9  # hundreds of comparisons are made for each column
_FEWEST_IN_ORDER = 20
_IN_ORDER = 0.95


def agree(values: "Floats", places: "Floats", tolerance: float) -> bool:
    """Whether so many values are as near to the place beside them as they are to no other place.

    Either half of all values, or, since many rows of one spot may share one harmless value, of the different ones.
    """
    import numpy as np

    near = np.abs(values - places) <= tolerance
    if near.sum() < _FEWEST:
        return False
    ordered, once = np.sort(places), np.unique(values, return_index=True)[1]
    several = near[once].sum()
    if near.mean() >= 0.5 and several >= _SPOTS and _is_no_accident(near, values, ordered, tolerance):
        return True
    return bool(several >= _FEWEST) and _is_no_accident(near[once], values[once], ordered, tolerance)


def in_order(values: "Floats", places: "Floats") -> bool:
    """Whether sorting by the one sorts by the other, up or down."""
    import numpy as np

    ranks = [_ranks(values), _ranks(places)]
    if min(len(np.unique(rank)) for rank in ranks) < _FEWEST_IN_ORDER:
        return False
    return bool(abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) > _IN_ORDER)


def _is_no_accident(near: "Flags", values: "Floats", ordered: "Floats", tolerance: float) -> bool:
    """Chernoff's bound on so many hits, when a value meets its own place no more often than the others' places."""
    hits, chance = float(near.mean()), _chance(int(near.sum()), values, ordered, tolerance)
    if hits <= chance:
        return False
    distance = hits * math.log(hits / chance)
    if hits < 1.0:
        distance += (1 - hits) * math.log((1 - hits) / (1 - chance))
    return len(near) * distance > -math.log(_CHANCE)


def _chance(own: int, values: "Floats", ordered: "Floats", tolerance: float) -> float:
    """How often a value is near the place of another row; no less than if places were spread evenly."""
    import numpy as np

    met = np.searchsorted(ordered, values + tolerance, "right") - np.searchsorted(ordered, values - tolerance, "left")
    others = max(len(values) * (len(ordered) - 1), 1)
    spread = float(ordered[-1] - ordered[0])
    even = 2 * tolerance / spread if spread > 0 else 1.0
    return min(max(float(met.sum() - own) / others, even), 1.0)


def _ranks(values: "Floats") -> "Floats":
    """Equal values share the middle of their ranks."""
    import numpy as np

    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles: Floats = np.cumsum(counts) - (counts - 1) / 2
    return middles[which]
