"""Reads untrusted Parquet files, and writes the one canonical form that is published."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations import Table
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet.geoparquet import file_metadata

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# A small file can unpack to more memory than the machine has.
UNPACKED_LIMIT = 4 * 1024**3
MAGIC = b"PAR1"
ROW_GROUP_SIZE = 128 * 1024
WRITE_OPTIONS: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "version": "2.6"}


def read_parquet(data: bytes, name: str) -> "pa.Table":
    """Returns the table. Raises InputUnreadable, naming the object, when the bytes are not Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        return pa.Table.from_batches(_read_batches(file, name), schema=file.schema_arrow)
    except (pa.ArrowException, OSError, ValueError):
        raise _unreadable_error(data, name) from None


def write_parquet(table: "pa.Table") -> bytes:
    """Returns the same bytes for the same table, regardless of its chunks in memory."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink, row_group_size=ROW_GROUP_SIZE, **WRITE_OPTIONS)
    return sink.getvalue()


def write_published(table: "pa.Table", declared: Table) -> bytes:
    """Returns the published form: the table, with GeoParquet and column metadata in its footer."""
    return write_parquet(table.replace_schema_metadata(file_metadata(table, declared)))


def rewrite_parquet(data: bytes, name: str) -> bytes:
    """Reads and writes the table again, one row group at a time, because in memory it can take a hundred times more."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        with pq.ParquetWriter(sink, file.schema_arrow, **WRITE_OPTIONS) as writer:
            for group in _row_groups(file, name):
                writer.write_table(group.combine_chunks(), row_group_size=ROW_GROUP_SIZE)
    except (pa.ArrowException, OSError, ValueError):
        raise _unreadable_error(data, name) from None
    return sink.getvalue()


def _row_groups(file: "pq.ParquetFile", name: str) -> "Iterator[pa.Table]":
    """Yields groups of the size we write, regardless of the groups in the file."""
    import pyarrow as pa

    waiting = file.schema_arrow.empty_table()
    for batch in _read_batches(file, name):
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows > ROW_GROUP_SIZE:
            yield waiting.slice(0, ROW_GROUP_SIZE)
            waiting = waiting.slice(ROW_GROUP_SIZE)
    yield waiting


def _read_batches(file: "pq.ParquetFile", name: str) -> "Iterator[pa.RecordBatch]":
    """Counts the unpacked bytes: sizes in the file mean little, since a text stored once can fill a million rows."""
    size = 0
    for batch in file.iter_batches(batch_size=8192):
        size += batch.nbytes
        if size > UNPACKED_LIMIT:
            raise InputUnreadable(f"{name} unpacks to more than {UNPACKED_LIMIT} bytes")
        yield batch


def _unreadable_error(data: bytes, name: str) -> InputUnreadable:
    """Leaves out Arrow's own message: it can quote the file, whose content not every reader may see."""
    detail = "it is damaged or truncated" if data[:4] == MAGIC else f"it does not begin with {MAGIC.decode()}"
    return InputUnreadable(f"{name} is not a readable Parquet file: {detail}")
