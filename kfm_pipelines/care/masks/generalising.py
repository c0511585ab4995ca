"""Which cells keep their records. A cell with too few features is none, and those that lost their cell are either none
or enough to hide among."""

from typing import TYPE_CHECKING

from kfm_pipelines.care.masks.features import Features

if TYPE_CHECKING:
    from kfm_pipelines.care.masks.arrays import Flags, Ints


def cells_kept(features: Features, cell: "Ints", nowhere: int, minimum: int) -> "tuple[Ints, Flags]":
    """The features of each cell, and whether it keeps them. `cell` has the number of each record's cell, lower ones go
    first among equals; `nowhere` is the number, after all others, of records that have no cell to begin with."""
    import numpy as np

    counts = features.count_by(cell, nowhere + 1)
    kept = counts >= minimum
    kept[nowhere] = False
    candidates = np.flatnonzero(kept)
    for smallest in candidates[np.argsort(counts[candidates], kind="stable")]:
        lost = features.of(~kept[cell]).count()
        if lost == 0 or lost >= minimum:
            break
        kept[smallest] = False
    return counts[:nowhere], kept
