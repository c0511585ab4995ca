"""The methods a rule can name, each done to the records of one class and kind of geometry."""

from dataclasses import replace
from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.cells import NO_CELL, cells_of
from kfm_pipelines.care.masks.displacement import moved, offsets
from kfm_pipelines.care.masks.generalise import cells_kept
from kfm_pipelines.care.masks.group import counted
from kfm_pipelines.care.masks.order import ranked
from kfm_pipelines.care.masks.released_places import and_nowhere, nowhere, shown_as_cells, shown_as_is, shown_as_points
from kfm_pipelines.care.masks.rows import Piece, Selection, one_row_each, tally_of
from kfm_pipelines.care.masks.shapes import REACH, cells_around
from kfm_pipelines.care.rules import Displace, Generalise, Group, Leave, Omit, Rule, Suppress
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.types import Cells, Ints

_SHORTEST_SECRET = 16


def masked(selection: Selection, rule: Rule) -> list[Piece]:
    match rule:
        case Leave():
            return [_left(selection)]
        case Generalise():
            return [_generalised(selection, rule)]
        case Displace():
            return [_displaced(selection, rule)]
        case Group():
            return counted(selection, rule) or [_suppressed(selection.empty())]
        case Suppress():
            return [_suppressed(selection)]
        case Omit():
            return [_suppressed(selection.empty())]


def _left(selection: Selection) -> Piece:
    import numpy as np

    source = selection.source
    shown = shown_as_is(source.table.select(source.declared.place_columns).take(selection.rows), source.declared)
    return one_row_each(selection, np.arange(len(selection.rows)), shown)


def _suppressed(selection: Selection) -> Piece:
    import numpy as np

    if selection.features.count() < selection.minimum:
        selection = selection.empty()
    return one_row_each(selection, np.zeros(len(selection.rows), np.int64), nowhere())


def _generalised(selection: Selection, rule: Generalise) -> Piece:
    import numpy as np

    if selection.features.count() < selection.minimum:
        return _suppressed(selection)  # and not even counted
    cells, cell = _numbered(_cells(selection, rule.resolution))
    counts, kept, placed = cells_kept(selection, cell, len(cells))
    # Records without a place are at the one after all cells, which is none.
    place = np.where(placed, (np.cumsum(kept) - 1)[cell], kept.sum())
    reach = 1.0 if selection.kind == "point" else REACH
    shown = and_nowhere(shown_as_cells(cells[kept[:-1]], geometries=selection.has_geometry, reach=reach))
    told = counts // selection.minimum * selection.minimum
    return one_row_each(selection, place, shown, tally_of(told, kept[:-1]))


def _cells(selection: Selection, resolution: int) -> "Cells":
    places, rows = selection.source.places, selection.rows
    if selection.kind == "point" or places.shapes is None:
        return cells_of(places.longitudes[rows], places.latitudes[rows], resolution)
    return cells_around(places.shapes[rows], resolution)


def _numbered(cells: "Cells") -> "tuple[Cells, Ints]":
    """The distinct cells in order, and the position of each record's. That of NO_CELL is after all others."""
    import numpy as np
    import pyarrow as pa

    found = ranked(pa.array(cells, mask=cells == NO_CELL))
    return np.asarray(found.values.to_numpy(), np.uint64), found.ranks


def _displaced(selection: Selection, rule: Displace) -> Piece:
    import numpy as np

    source, rows = selection.source, selection.rows
    if len(source.secret) < _SHORTEST_SECRET:
        raise PolicyRefused(f"the secret for displacement must have {_SHORTEST_SECRET} bytes or more")
    _, first, feature = np.unique(selection.features.codes, return_index=True, return_inverse=True)
    ids = [source.table.column(name).take(rows[first]).combine_chunks() for name in source.policy.stable_id]
    angles, distances = offsets(source.secret, source.policy.policy, ids, rule)
    longitudes, latitudes = moved(
        source.places.longitudes[rows], source.places.latitudes[rows], angles[feature], distances[feature]
    )
    shown = shown_as_points(longitudes, latitudes, rule.max_m, geometries=selection.has_geometry)
    return replace(one_row_each(selection, np.arange(len(rows)), shown), distances=distances)
