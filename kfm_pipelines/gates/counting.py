"""Counting rows that something is true of."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def count_true(condition: "pa.ChunkedArray | pa.Array") -> int:
    """What is not known is not counted."""
    import pyarrow.compute as pc

    return int(pc.sum(condition).as_py() or 0)
