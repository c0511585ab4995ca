"""Which groups may be counted in public, so that nothing anybody can work out from all counts together is about fewer
than the minimum of features.

Belongs here: the choice, on numbers alone. Does not: where groups are, and how they are published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.crowds import Crowd
from kfm_pipelines.care.masks.features import Features

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.arrays import Flags, Ints


@dataclass(frozen=True, slots=True)
class Choice:
    """What is released at one resolution."""

    counts: "Ints"  # features of each group
    released: "Flags"  # for each group
    remainder: int  # features of all other groups together, when that is published; else 0


def choose(crowd: Crowd, groups: "Sequence[Ints]", minimum: int) -> list[Choice]:
    """`groups` has for each resolution, coarsest first, the group of each record; lower numbers go first among equals.
    Nothing is chosen when there are too few features altogether."""
    import numpy as np

    if crowd.features.count() < minimum:
        return []
    choices = [_choose_coarsest(crowd, groups[0], minimum)]
    parts = np.zeros(len(crowd.features.codes), np.int64)
    for coarser, finer in pairwise(groups):
        parts = _refined(parts, coarser, choices[-1].released)
        choices.append(_choose_finer(crowd, finer, parts, minimum))
    return choices


def _choose_coarsest(crowd: Crowd, group: "Ints", minimum: int) -> Choice:
    """What is too small is counted together. If that is too small as well, or one group only, the smallest join it."""
    import numpy as np

    features, size = crowd.features, int(group.max()) + 1
    counts = features.count_by(group, size)
    released = crowd.enough_by(group, size, minimum)
    if released.all():
        return Choice(counts, released, 0)
    for smallest in _smallest_first(counts, np.flatnonzero(released)):
        if _remains(features, group, released) >= minimum and size - released.sum() > 1:
            break
        released[smallest] = False
    return Choice(counts, released, _remains(features, group, released))


def _choose_finer(crowd: Crowd, group: "Ints", parts: "Ints", minimum: int) -> Choice:
    """A group goes when it shares fewer than the minimum with any part of what is known already; then the smallest
    groups go, where they leave too few of such a part over. What goes is at least the minimum, so once is enough."""
    import numpy as np

    size, parts_size = int(group.max()) + 1, int(parts.max()) + 1
    counts = crowd.features.count_by(group, size)
    atoms, atom = np.unique(group * parts_size + parts, return_inverse=True)
    atom_group, atom_part = atoms // parts_size, atoms % parts_size
    released = np.ones(size, np.bool_)
    released[atom_group[~crowd.enough_by(atom, len(atoms), minimum)]] = False
    rest = ~released[group]
    too_few = ~crowd.of(rest).enough_by(parts[rest], parts_size, minimum)
    kept = released.copy()
    for part in np.intersect1d(parts[rest], np.flatnonzero(too_few)):
        within = atom_group[atom_part == part]
        within = within[kept[within]]
        if len(within) and released[within].all():
            released[_smallest_first(counts, within)[0]] = False
    return Choice(counts, released, 0)


def _remains(features: Features, group: "Ints", released: "Flags") -> int:
    return features.of(~released[group]).count()


def _smallest_first(counts: "Ints", groups: "Ints") -> "Ints":
    import numpy as np

    return groups[np.lexsort((groups, counts[groups]))]


def _refined(parts: "Ints", group: "Ints", released: "Flags") -> "Ints":
    """Each part cut by the released groups, and what lies in none of them."""
    import numpy as np

    cut = np.where(released[group], group + 1, 0) * (int(parts.max()) + 1) + parts
    return np.unique(cut, return_inverse=True)[1]
