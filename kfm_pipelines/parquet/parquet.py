"""Parquet bytes: reading what strangers send, and writing the one canonical form that is published."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations import Table
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet.geoparquet import file_metadata

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# A small file can unpack into more memory than the machine has.
UNPACKED_LIMIT = 4 * 1024**3
MAGIC = b"PAR1"
ROW_GROUP_SIZE = 128 * 1024
WRITE_OPTIONS: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "version": "2.6"}


def read_parquet(data: bytes, name: str) -> "pa.Table":
    """The table in these bytes; InputUnreadable, naming the object, when they are no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(io.BytesIO(data))
        return pa.Table.from_batches(_read_batches(file, name), schema=file.schema_arrow)
    except (pa.ArrowException, OSError, ValueError):
        raise _unreadable_error(data, name) from None


def write_parquet(table: "pa.Table") -> bytes:
    """The same table always gives the same bytes, however it came to lie in memory."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink, row_group_size=ROW_GROUP_SIZE, **WRITE_OPTIONS)
    return sink.getvalue()


def write_published(table: "pa.Table", declared: Table) -> bytes:
    """What readers get: the table, and in its footer what any program needs to show it."""
    return write_parquet(table.replace_schema_metadata(file_metadata(table, declared)))


def rewrite_parquet(data: bytes, name: str) -> bytes:
    """What writing the table in these bytes again gives, a group of rows at a time: a table that says the same in every
    row takes a hundred times more memory than its file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        with pq.ParquetWriter(sink, file.schema_arrow, **WRITE_OPTIONS) as writer:
            for group in _row_groups(file, name):
                writer.write_table(group.combine_chunks(), row_group_size=ROW_GROUP_SIZE)
    except (pa.ArrowException, OSError, ValueError):
        raise _unreadable_error(data, name) from None
    return sink.getvalue()


def _row_groups(file: "pq.ParquetFile", name: str) -> "Iterator[pa.Table]":
    """As many rows as a group is written with, wherever the file itself cuts between rows."""
    import pyarrow as pa

    waiting = file.schema_arrow.empty_table()
    for batch in _read_batches(file, name):
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows > ROW_GROUP_SIZE:
            yield waiting.slice(0, ROW_GROUP_SIZE)
            waiting = waiting.slice(ROW_GROUP_SIZE)
    yield waiting


def _read_batches(file: "pq.ParquetFile", name: str) -> "Iterator[pa.RecordBatch]":
    """Counting: what the file says of its size means little, because a text it holds once can be the value of a million
    rows."""
    size = 0
    for batch in file.iter_batches(batch_size=8192):
        size += batch.nbytes
        if size > UNPACKED_LIMIT:
            raise InputUnreadable(f"{name} unpacks to more than {UNPACKED_LIMIT} bytes")
        yield batch


def _unreadable_error(data: bytes, name: str) -> InputUnreadable:
    """Arrow's own words can quote what is in the file, and these are read by people who may not see that."""
    detail = "it is damaged or cut off" if data[:4] == MAGIC else f"it does not begin with {MAGIC.decode()}"
    return InputUnreadable(f"{name} is not a readable Parquet file: {detail}")
