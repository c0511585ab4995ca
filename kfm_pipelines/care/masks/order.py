"""Order by value: ranks of a column, and one order over several. Nothing here depends on where a row stood."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.types import Ints

_LARGEST_KEY = 2**62


@dataclass(frozen=True, slots=True)
class RankedColumn:
    """For each row the rank of its value. Equal values have the same rank, and a null ranks after all values."""

    ranks: "Ints"
    size: int  # one more than the highest rank that can occur
    values: "pa.Array"  # what the ranks stand for

    def take(self, rows: "Ints") -> "RankedColumn":
        return RankedColumn(self.ranks[rows], self.size, self.values)


def rank_column(column: "pa.Array | pa.ChunkedArray") -> RankedColumn:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = whole.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    rank_of = np.empty(len(order) + 1, np.int64)
    rank_of[order.to_numpy()] = np.arange(len(order))
    rank_of[-1] = len(order)
    codes = encoded.indices.fill_null(len(order)) if encoded.null_count else encoded.indices
    return RankedColumn(rank_of[codes.to_numpy()], len(rank_of), encoded.dictionary.take(order))


def joint_key(columns: Iterable[RankedColumn], rows: int) -> "Ints":
    """A number for each row that orders the rows by the first column, then by the second, and so on. There is room in
    it for the number of rows as well."""
    import numpy as np

    key, size = np.zeros(rows, np.int64), 1
    for column in columns:
        if size * column.size > _LARGEST_KEY:
            key, size = _compact_key(key)
        key = key * column.size + column.ranks
        size *= column.size
    return key if size * max(rows, 1) <= _LARGEST_KEY else _compact_key(key)[0]


def stable_argsort(key: "Ints") -> "Ints":
    """The positions of the rows by their keys; equal ones stay as they are. Sorting numbers that are all different is
    several times as quick as keeping equal ones in place."""
    import numpy as np

    rows = len(key)
    return np.sort(key * rows + np.arange(rows)) % max(rows, 1)


def _compact_key(key: "Ints") -> "tuple[Ints, int]":
    import numpy as np

    present, closed_up = np.unique(key, return_inverse=True)
    return closed_up, len(present)
