"""Masking methods, each applied to the records of one class and kind of geometry."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from kfm_pipelines.care.masks.cells import NO_CELL, REACH, cells_around, cells_of
from kfm_pipelines.care.masks.displacement import derive_offsets, displace_points
from kfm_pipelines.care.masks.generalise import choose_released_cells
from kfm_pipelines.care.masks.group import count_groups
from kfm_pipelines.care.masks.order import rank_column
from kfm_pipelines.care.masks.released_places import (
    append_no_place,
    no_place,
    release_as_cells,
    release_as_points,
    release_unchanged,
)
from kfm_pipelines.care.masks.rows import Selection, TableFragment, count_cells, one_row_per_record
from kfm_pipelines.care.masks.types import Cells, Ints
from kfm_pipelines.care.rules import Displace, Generalise, Group, Leave, Omit, Rule, Suppress
from kfm_pipelines.errors import PolicyRefused

_MIN_SECRET_BYTES = 16


def apply_rule(selection: Selection, rule: Rule) -> list[TableFragment]:
    match rule:
        case Leave():
            return [_leave(selection)]
        case Generalise():
            return [_generalise(selection, rule)]
        case Displace():
            return [_displace(selection, rule)]
        case Group():
            return count_groups(selection, rule) or [_suppress(selection.empty())]
        case Suppress():
            return [_suppress(selection)]
        case Omit():
            return [_suppress(selection.empty())]


def _leave(selection: Selection) -> TableFragment:
    source = selection.source
    released = release_unchanged(
        source.table.select(source.declared.place_columns).take(selection.rows), source.declared
    )
    return one_row_per_record(selection, np.arange(len(selection.rows)), released)


def _suppress(selection: Selection) -> TableFragment:
    if selection.features.count() < selection.minimum:
        selection = selection.empty()
    return one_row_per_record(selection, np.zeros(len(selection.rows), np.int64), no_place())


def _generalise(selection: Selection, rule: Generalise) -> TableFragment:
    if selection.features.count() < selection.minimum:
        return _suppress(selection)  # which omits them entirely
    cells, cell = _number_cells(_find_cells(selection, rule.resolution))
    counts, kept, placed = choose_released_cells(selection, cell, len(cells))
    # Records without a place point to the missing place after all cells.
    place = np.where(placed, (np.cumsum(kept) - 1)[cell], kept.sum())
    reach = 1.0 if selection.kind == "point" else REACH
    released = append_no_place(release_as_cells(cells[kept[:-1]], geometries=selection.has_geometry, reach=reach))
    rounded = counts // selection.minimum * selection.minimum
    return one_row_per_record(selection, place, released, count_cells(rounded, kept[:-1]))


def _find_cells(selection: Selection, resolution: int) -> Cells:
    places, rows = selection.source.places, selection.rows
    if selection.kind == "point" or places.shapes is None:
        return cells_of(places.longitudes[rows], places.latitudes[rows], resolution)
    return cells_around(places.shapes[rows], resolution)


def _number_cells(cells: Cells) -> tuple[Cells, Ints]:
    """Returns the distinct cells in order and the position of each record's; NO_CELL comes after all others."""
    found = rank_column(pa.array(cells, mask=cells == NO_CELL))
    return np.asarray(found.values.to_numpy(), np.uint64), found.ranks


def _displace(selection: Selection, rule: Displace) -> TableFragment:
    source, rows = selection.source, selection.rows
    if len(source.secret) < _MIN_SECRET_BYTES:
        raise PolicyRefused(f"the displacement secret must have at least {_MIN_SECRET_BYTES} bytes")
    _, first, feature = np.unique(selection.features.codes, return_index=True, return_inverse=True)
    ids = [source.table.column(name).take(rows[first]).combine_chunks() for name in source.policy.stable_id]
    angles, distances = derive_offsets(source.secret, source.policy.policy, ids, rule)
    longitudes, latitudes = displace_points(
        source.places.longitudes[rows], source.places.latitudes[rows], angles[feature], distances[feature]
    )
    released = release_as_points(longitudes, latitudes, rule.max_m, geometries=selection.has_geometry)
    return replace(one_row_per_record(selection, np.arange(len(rows)), released), distances=distances)
