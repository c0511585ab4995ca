"""Which groups may be counted in public, so that nothing anybody can work out from all counts together is about fewer
than the minimum of features.

Belongs here: the choice, on numbers alone. Does not: where groups are, and how they are published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import cells_of
from kfm_pipelines.care.masks.features import Features
from kfm_pipelines.care.masks.order import RankedColumn, joint_key, rank_column
from kfm_pipelines.care.masks.released_places import append_no_place, release_as_cells
from kfm_pipelines.care.masks.rows import NO_SAMPLE, AnonymitySet, Selection, TableFragment, count_cells
from kfm_pipelines.care.rules import Group
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.types import Cells, Flags, Ints


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """What is released at one resolution."""

    counts: "Ints"  # features of each group
    released: "Flags"  # for each group
    remainder: int  # features of all other groups together, when that is published; else 0


def choose_groups(anonymity_set: AnonymitySet, groups: "Sequence[Ints]", minimum: int) -> list[GroupChoice]:
    """`groups` has for each resolution, coarsest first, the group of each record; lower numbers go first among equals.
    Nothing is chosen when there are too few features altogether."""
    import numpy as np

    if anonymity_set.features.count() < minimum:
        return []
    choices = [_choose_coarsest(anonymity_set, groups[0], minimum)]
    parts = np.zeros(len(anonymity_set.features.codes), np.int64)
    for coarser, finer in pairwise(groups):
        parts = _refine_parts(parts, coarser, choices[-1].released)
        choices.append(_choose_finer(anonymity_set, finer, parts, minimum))
    return choices


def _choose_coarsest(anonymity_set: AnonymitySet, group: "Ints", minimum: int) -> GroupChoice:
    """What is too small is counted together. If that is too small as well, or one group only, the smallest join it."""
    import numpy as np

    features, size = anonymity_set.features, int(group.max()) + 1
    counts = features.count_by(group, size)
    released = anonymity_set.meets_minimum_by(group, size, minimum)
    if released.all():
        return GroupChoice(counts, released, 0)
    for smallest in _smallest_first(counts, np.flatnonzero(released)):
        if _count_remainder(features, group, released) >= minimum and size - released.sum() > 1:
            break
        released[smallest] = False
    return GroupChoice(counts, released, _count_remainder(features, group, released))


def _choose_finer(anonymity_set: AnonymitySet, group: "Ints", parts: "Ints", minimum: int) -> GroupChoice:
    """A group goes when it shares fewer than the minimum with any part of what is known already; then the smallest
    groups go, where they leave too few of such a part over. What goes is at least the minimum, so once is enough."""
    import numpy as np

    size, parts_size = int(group.max()) + 1, int(parts.max()) + 1
    counts = anonymity_set.features.count_by(group, size)
    atoms, atom = np.unique(group * parts_size + parts, return_inverse=True)
    atom_group, atom_part = atoms // parts_size, atoms % parts_size
    released = np.ones(size, np.bool_)
    released[atom_group[~anonymity_set.meets_minimum_by(atom, len(atoms), minimum)]] = False
    rest = ~released[group]
    too_few = ~anonymity_set.of(rest).meets_minimum_by(parts[rest], parts_size, minimum)
    kept = released.copy()
    for part in np.intersect1d(parts[rest], np.flatnonzero(too_few)):
        within = atom_group[atom_part == part]
        within = within[kept[within]]
        if len(within) and released[within].all():
            released[_smallest_first(counts, within)[0]] = False
    return GroupChoice(counts, released, 0)


def _count_remainder(features: Features, group: "Ints", released: "Flags") -> int:
    return features.of(~released[group]).count()


def _smallest_first(counts: "Ints", groups: "Ints") -> "Ints":
    import numpy as np

    return groups[np.lexsort((groups, counts[groups]))]


def _refine_parts(parts: "Ints", group: "Ints", released: "Flags") -> "Ints":
    """Each part cut by the released groups, and what lies in none of them."""
    import numpy as np

    cut = np.where(released[group], group + 1, 0) * (int(parts.max()) + 1) + parts
    return np.unique(cut, return_inverse=True)[1]


def count_groups(selection: Selection, rule: Group) -> list[TableFragment]:
    """A piece for each resolution, coarsest first; none when there are too few features altogether."""
    source, rows = selection.source, selection.rows
    longitudes, latitudes = source.places.longitudes[rows], source.places.latitudes[rows]
    by = [rank_column(source.table.column(name).take(rows)) for name in rule.by]
    cells = [cells_of(longitudes, latitudes, resolution) for resolution in sorted(rule.resolutions)]
    groups = [_number_groups(one, by) for one in cells]
    choices = choose_groups(selection.anonymity_set(), groups, selection.minimum)
    _refuse_single_group(selection, choices)
    return [
        _build_fragment(selection, rule, *found, choice)
        for found, choice in zip(zip(cells, groups, strict=True), choices, strict=False)
    ]


def _refuse_single_group(selection: Selection, choices: list[GroupChoice]) -> None:
    """Counted without a cell it would be that cell with its name off."""
    if choices and choices[0].remainder and len(choices[0].counts) == 1:
        raise PolicyRefused(
            f"all records of class {selection.sensitivity!r} are in one group, at fewer places than the minimum count"
        )


def _number_groups(cells: "Cells", by: list[RankedColumn]) -> "Ints":
    """The number of each record's group; groups are numbered by cell, then by their values."""
    import pyarrow as pa

    found = rank_column(pa.array(cells))
    return rank_column(pa.array(joint_key([found, *by], len(cells)))).ranks if by else found.ranks


def _build_fragment(
    selection: Selection, rule: Group, cells: "Cells", group: "Ints", choice: GroupChoice
) -> TableFragment:
    import numpy as np

    released = choice.released
    number_of = np.where(released, np.cumsum(released) - 1, released.sum())[group]
    sample = _sample_records(group, len(released))[released]
    shown_cells, place = np.unique(cells[sample], return_inverse=True)
    sample, counts = selection.rows[sample], choice.counts[released]
    if choice.remainder:
        counts = np.append(counts, choice.remainder)
        place = np.append(place, len(shown_cells))
        sample = np.append(sample, NO_SAMPLE)
    published = number_of < len(counts)
    minimum = selection.minimum
    return TableFragment(
        sensitivity=selection.sensitivity,
        place=place,
        records=counts // minimum * minimum,
        sample=sample,
        carried_columns=frozenset(rule.by),
        released_places=append_no_place(release_as_cells(shown_cells, geometries=selection.has_geometry)),
        source_rows=selection.rows[published],
        target_rows=number_of[published],
        cell_counts=count_cells(choice.counts // minimum * minimum, released),
    )


def _sample_records(group: "Ints", size: int) -> "Ints":
    """They are alike in all that a group is by, so it does not matter which."""
    import numpy as np

    found = np.zeros(size, np.int64)
    found[group] = np.arange(len(group))
    return found
