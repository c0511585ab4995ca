"""What is in a Parquet file, unpacked: every column, all metadata and all statistics, as bytes and as text."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def unpacked(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Nothing when the bytes are no readable Parquet."""
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        table = file.read()
    except (pa.ArrowException, OSError, ValueError):
        return
    yield "footer", "\n".join(_of_footer(file)).encode(errors="replace")
    for name, column in zip(table.column_names, table.columns, strict=True):
        yield f"column {name}", _as_text(column)
        yield f"column {name}", _as_bytes(column)


def number_columns(data: bytes) -> "list[np.ndarray[Any, Any]]":
    """The columns of numbers with a fraction, to hold pairs of them against a place."""
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError, ValueError):
        return []
    columns = [column for column in table.columns if pa.types.is_floating(column.type)]
    return [pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy() for column in columns]


def _of_footer(file: Any) -> Iterator[str]:
    yield str(file.schema_arrow.to_string(truncate_metadata=False))
    for key, value in (file.metadata.metadata or {}).items():
        yield f"{key.decode(errors='replace')} {value.decode(errors='replace')}"
    for group in range(file.metadata.num_row_groups):
        for place in range(file.metadata.num_columns):
            statistics = file.metadata.row_group(group).column(place).statistics
            if statistics is not None and statistics.has_min_max:
                yield f"{statistics.min} {statistics.max}"


def _as_text(column: pa.ChunkedArray) -> bytes:
    return "\n".join(
        value.decode("latin-1") if isinstance(value, bytes) else str(value) for value in column.to_pylist()
    ).encode(errors="replace")


def _as_bytes(column: pa.ChunkedArray) -> bytes:
    """The values as they lie in memory, which for text and geometries is one after the other."""
    plain = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(plain, pa.ChunkedArray):  # of no rows
        return b""
    if pa.types.is_dictionary(plain.type):
        plain = plain.dictionary_decode()
    return b"\n".join(buffer.to_pybytes() for buffer in plain.buffers() if buffer is not None)
