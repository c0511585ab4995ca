"""Which records keep the cell they lie in. A cell with too few features is none, each of the others keeps a multiple of
the minimum, and those that lost their place are either none or enough to hide among."""

from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.pieces import Selection
from kfm_pipelines.care.masks.surplus import surplus

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.arrays import Flags, Ints


def cells_kept(selection: Selection, cell: "Ints", nowhere: int) -> "tuple[Ints, Flags, Flags]":
    """The features of each cell, whether it is released, and for each record whether it keeps its place. `cell` has the
    number of each record's cell, lower ones go first among equals; `nowhere` is the number, after all others, of
    records that have no cell to begin with."""
    import numpy as np

    features, minimum = selection.features, selection.minimum
    counts = features.count_by(cell, nowhere + 1)
    kept = selection.crowd().enough_by(cell, nowhere + 1, minimum)
    kept[nowhere] = False
    candidates = np.flatnonzero(kept)
    smallest_first = iter(candidates[np.argsort(counts[candidates], kind="stable")])
    while True:
        placed = kept[cell] & ~surplus(selection, cell, counts, kept)
        lost = features.of(~placed).count()
        smallest = next(smallest_first, None)
        if lost == 0 or lost >= minimum or smallest is None:
            return counts[:nowhere], kept, placed
        kept[smallest] = False
