"""Chooses groups so that nothing derived from all counts describes fewer features than the minimum."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kfm_pipelines.care.masks.cells import cells_of
from kfm_pipelines.care.masks.features import Features
from kfm_pipelines.care.masks.order import RankedColumn, joint_key, rank_column
from kfm_pipelines.care.masks.released_places import append_no_place, release_as_cells
from kfm_pipelines.care.masks.rows import NO_SAMPLE, AnonymitySet, Selection, TableFragment, count_cells
from kfm_pipelines.care.masks.types import Cells, Flags, Ints
from kfm_pipelines.care.rules import Group
from kfm_pipelines.errors import PolicyRefused


@dataclass(frozen=True, slots=True)
class GroupChoice:
    counts: Ints  # features of each group
    released: Flags  # for each group
    remainder: int  # features of all other groups together; 0 when that is not published


def choose_groups(anonymity_set: AnonymitySet, groups: Sequence[Ints], minimum: int) -> list[GroupChoice]:
    """Returns a choice per resolution, or none when there are too few features altogether.

    `groups` has for each resolution, coarsest first, the group of each record; among equally small groups the lower
    number is dropped first."""
    if anonymity_set.features.count() < minimum:
        return []
    choices = [_choose_coarsest(anonymity_set, groups[0], minimum)]
    parts = np.zeros(len(anonymity_set.features.codes), np.int64)
    for coarser, finer in pairwise(groups):
        # Each part is split by the released groups and what lies in none of them.
        cut = np.where(choices[-1].released[coarser], coarser + 1, 0) * (int(parts.max()) + 1) + parts
        parts = np.unique(cut, return_inverse=True)[1]
        choices.append(_choose_finer(anonymity_set, finer, parts, minimum))
    return choices


def _choose_coarsest(anonymity_set: AnonymitySet, group: Ints, minimum: int) -> GroupChoice:
    """Counts small groups together. While that remainder is too small or one group, the smallest group joins it."""
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


def _choose_finer(anonymity_set: AnonymitySet, group: Ints, parts: Ints, minimum: int) -> GroupChoice:
    """Drops a group that shares fewer features than the minimum with any part already known, then the smallest group
    of each part that is left with too few. A dropped group has at least the minimum, so one pass is enough."""
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


def _count_remainder(features: Features, group: Ints, released: Flags) -> int:
    return features.of(~released[group]).count()


def _smallest_first(counts: Ints, groups: Ints) -> Ints:
    return groups[np.lexsort((groups, counts[groups]))]


def count_groups(selection: Selection, rule: Group) -> list[TableFragment]:
    """Returns a fragment per resolution, coarsest first; none when there are too few features altogether."""
    source, rows = selection.source, selection.rows
    longitudes, latitudes = source.places.longitudes[rows], source.places.latitudes[rows]
    by = [rank_column(source.table.column(name).take(rows)) for name in rule.by]
    cells = [cells_of(longitudes, latitudes, resolution) for resolution in sorted(rule.resolutions)]
    groups = [_number_groups(one, by) for one in cells]
    choices = choose_groups(selection.anonymity_set(), groups, selection.minimum)
    # A remainder of one group would be that group without its name.
    if choices and choices[0].remainder and len(choices[0].counts) == 1:
        raise PolicyRefused(
            f"all records of class {selection.sensitivity!r} are in one group, at fewer places than the minimum count"
        )
    return [
        _build_fragment(selection, rule, *found, choice)
        for found, choice in zip(zip(cells, groups, strict=True), choices, strict=False)
    ]


def _number_groups(cells: Cells, by: list[RankedColumn]) -> Ints:
    """Numbers groups by cell, then by their values."""
    found = rank_column(pa.array(cells))
    return rank_column(pa.array(joint_key([found, *by], len(cells)))).ranks if by else found.ranks


def _build_fragment(selection: Selection, rule: Group, cells: Cells, group: Ints, choice: GroupChoice) -> TableFragment:
    released = choice.released
    number_of = np.where(released, np.cumsum(released) - 1, released.sum())[group]
    # Any one record per group will do: all agree in the values they are grouped by.
    found = np.zeros(len(released), np.int64)
    found[group] = np.arange(len(group))
    sample = found[released]
    released_cells, place = np.unique(cells[sample], return_inverse=True)
    sample, counts = selection.rows[sample], choice.counts[released]
    if choice.remainder:
        counts = np.append(counts, choice.remainder)
        place = np.append(place, len(released_cells))
        sample = np.append(sample, NO_SAMPLE)
    published = number_of < len(counts)
    minimum = selection.minimum
    return TableFragment(
        sensitivity=selection.sensitivity,
        place=place,
        records=counts // minimum * minimum,
        sample=sample,
        carried_columns=frozenset(rule.by),
        released_places=append_no_place(release_as_cells(released_cells, geometries=selection.has_geometry)),
        source_rows=selection.rows[published],
        target_rows=number_of[published],
        cell_counts=count_cells(choice.counts // minimum * minimum, released),
    )
