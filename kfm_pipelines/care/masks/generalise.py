"""Chooses which records lose their place, so that a multiple of the minimum count keeps it in every cell.

Two releases that differ by one record then differ in each cell by nothing or by the minimum count. The secret decides
who loses the place, anew for every size of a cell, so that the record that was added is not the one that appears.
"""

import hmac

import numpy as np

from kfm_pipelines.care.masks.displacement import Draws, hash_coordinates, mix_bits
from kfm_pipelines.care.masks.order import joint_key, rank_column
from kfm_pipelines.care.masks.rows import Selection
from kfm_pipelines.care.masks.types import Flags, Ints


def flag_excess_records(selection: Selection, cell: Ints, counts: Ints, kept: Flags) -> Flags:
    """Flags the records to drop from their cells. `counts` has the features of each cell."""
    excess = np.where(kept, counts % selection.minimum, 0)
    found = np.zeros(len(cell), dtype=bool)
    concerned = np.flatnonzero(excess[cell] > 0)
    if len(concerned) == 0:
        return found
    cells = cell[concerned]
    sizes = counts[cells].astype(np.uint64)
    draws = mix_bits(_feature_numbers(selection, concerned) ^ mix_bits(sizes ^ np.uint64(_seed(selection))))
    rank, tied = _rank_draws(cells, draws)
    if tied and selection.features.unique:  # several features at one place differ by their ids only
        draws = mix_bits(_id_numbers(selection, concerned) ^ mix_bits(sizes ^ np.uint64(_seed(selection))))
        rank, _ = _rank_draws(cells, draws)
    found[concerned] = rank < excess[cells]
    return found


def _rank_draws(cells: Ints, draws: Draws) -> tuple[Ints, bool]:
    """Returns the rank of each record's draw among the distinct ones of its cell, and whether any draws were equal."""
    # Sorting by draw, then by cell is several times faster than by both at once, above all with a small integer type.
    by_draw = np.argsort(draws)
    order = by_draw[np.argsort(cells[by_draw].astype(np.min_scalar_type(cells.max())), kind="stable")]
    ordered_cells, ordered_draws = cells[order], draws[order]
    other_cell = np.append(True, ordered_cells[1:] != ordered_cells[:-1])
    other = other_cell | np.append(True, ordered_draws[1:] != ordered_draws[:-1])
    number = np.cumsum(other) - 1
    first = np.maximum.accumulate(np.where(other_cell, number, 0))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = number - first
    return ranks, not bool(other.all())


def _feature_numbers(selection: Selection, concerned: Ints) -> Draws:
    """Returns a number per feature, whatever the order of the rows; by coordinates, where each feature has only one."""
    if not selection.features.unique:
        return _id_numbers(selection, concerned)
    places, rows = selection.source.places, selection.rows[concerned]
    return hash_coordinates(places.longitudes[rows], places.latitudes[rows])


def _id_numbers(selection: Selection, concerned: Ints) -> Draws:
    source, rows = selection.source, selection.rows[concerned]
    columns = [rank_column(source.table.column(name).take(rows)) for name in source.policy.stable_id]
    return joint_key(columns, len(rows)).astype(np.uint64)


def _seed(selection: Selection) -> int:
    source = selection.source
    subject = f"kfm-surplus-1\n{source.policy.policy}\n{selection.sensitivity}\n{selection.kind}".encode()
    return int.from_bytes(hmac.digest(source.secret, subject, "sha256")[:8], "big")


def choose_released_cells(selection: Selection, cell: Ints, no_cell: int) -> tuple[Ints, Flags, Flags]:
    """Returns the features of each cell, whether each cell is released, and whether each record keeps its place.

    `cell` has the number of each record's cell; among equally small cells the lower number is dropped first. `no_cell`
    is the number, after all others, of records without a cell."""
    features, minimum = selection.features, selection.minimum
    counts = features.count_by(cell, no_cell + 1)
    kept = selection.anonymity_set().meets_minimum_by(cell, no_cell + 1, minimum)
    kept[no_cell] = False
    candidates = np.flatnonzero(kept)
    smallest_first = iter(candidates[np.argsort(counts[candidates], kind="stable")])
    while True:
        placed = kept[cell] & ~flag_excess_records(selection, cell, counts, kept)
        lost = features.of(~placed).count()
        smallest = next(smallest_first, None)
        if lost == 0 or lost >= minimum or smallest is None:
            return counts[:no_cell], kept, placed
        kept[smallest] = False
