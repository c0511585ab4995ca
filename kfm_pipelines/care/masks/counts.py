"""Groups as they are published: one row for each released cell, with how many features it has, rounded down.

Rounding is what keeps two releases that differ by one record from telling which one.
"""

from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import cells_of
from kfm_pipelines.care.masks.grouping import Choice, choose
from kfm_pipelines.care.masks.order import Ranked, joint_key, ranked
from kfm_pipelines.care.masks.pieces import NO_SAMPLE, Piece, Selection, tally_of
from kfm_pipelines.care.masks.shown import and_nowhere, shown_as_cells
from kfm_pipelines.care.rules import Group
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.arrays import Cells, Ints


def counted(selection: Selection, rule: Group) -> list[Piece]:
    """A piece for each resolution, coarsest first; none when there are too few features altogether."""
    source, rows = selection.source, selection.rows
    longitudes, latitudes = source.places.longitudes[rows], source.places.latitudes[rows]
    by = [ranked(source.table.column(name).take(rows)) for name in rule.by]
    cells = [cells_of(longitudes, latitudes, resolution) for resolution in sorted(rule.resolutions)]
    groups = [_numbered(one, by) for one in cells]
    choices = choose(selection.crowd(), groups, selection.minimum)
    _refuse_a_single_spot(selection, choices)
    return [
        _piece(selection, rule, *found, choice)
        for found, choice in zip(zip(cells, groups, strict=True), choices, strict=False)
    ]


def _refuse_a_single_spot(selection: Selection, choices: list[Choice]) -> None:
    """Counted without a cell it would be that cell with its name off."""
    if choices and choices[0].remainder and len(choices[0].counts) == 1:
        raise PolicyRefused(
            f"all records of class {selection.sensitivity!r} are in one group, at fewer places than the minimum count"
        )


def _numbered(cells: "Cells", by: list[Ranked]) -> "Ints":
    """The number of each record's group; groups are numbered by cell, then by their values."""
    import pyarrow as pa

    found = ranked(pa.array(cells))
    return ranked(pa.array(joint_key([found, *by], len(cells)))).ranks if by else found.ranks


def _piece(selection: Selection, rule: Group, cells: "Cells", group: "Ints", choice: Choice) -> Piece:
    import numpy as np

    released = choice.released
    number_of = np.where(released, np.cumsum(released) - 1, released.sum())[group]
    sample = _any_record_of(group, len(released))[released]
    shown_cells, place = np.unique(cells[sample], return_inverse=True)
    sample, counts = selection.rows[sample], choice.counts[released]
    if choice.remainder:
        counts = np.append(counts, choice.remainder)
        place = np.append(place, len(shown_cells))
        sample = np.append(sample, NO_SAMPLE)
    published = number_of < len(counts)
    minimum = selection.minimum
    return Piece(
        sensitivity=selection.sensitivity,
        place=place,
        records=counts // minimum * minimum,
        sample=sample,
        carries=frozenset(rule.by),
        shown=and_nowhere(shown_as_cells(shown_cells, geometries=selection.drawn)),
        came_from=selection.rows[published],
        went_to=number_of[published],
        tally=tally_of(choice.counts // minimum * minimum, released),
    )


def _any_record_of(group: "Ints", size: int) -> "Ints":
    """They are alike in all that a group is by, so it does not matter which."""
    import numpy as np

    found = np.zeros(size, np.int64)
    found[group] = np.arange(len(group))
    return found
