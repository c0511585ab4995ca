"""Reads untrusted Parquet files, and writes the one canonical form that is published."""

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.vectors import COVERING
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.parquet import boxes as box_column
from kfm_pipelines.parquet.geoparquet import file_metadata

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# A small file can unpack to more memory than the machine has.
UNPACKED_LIMIT = 4 * 1024**3
MAGIC = b"PAR1"
ROW_GROUP_SIZE = 128 * 1024
WRITE_OPTIONS: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "version": "2.6"}


def read_parquet(
    data: bytes,
    name: str,
    *,
    unpacked_limit: int | None = None,
    row_limit: int | None = None,
    choose: Callable[[list[str]], list[str]] | None = None,
) -> "pa.Table":
    """Returns the table without the boxes of its geometries, or the columns that `choose` picks. Raises
    InputUnreadable, naming the object, when the bytes are not Parquet or unpack to more than is allowed."""
    import pyarrow as pa

    try:
        file, schema = _open(data, name, unpacked_limit)
        if row_limit is not None and file.metadata.num_rows > row_limit:
            raise InputUnreadable(f"{name} has {file.metadata.num_rows} rows; at most {row_limit} are allowed")
        columns = [one for one in schema.names if one != COVERING] if _has_boxes(schema) else schema.names
        columns = choose(columns) if choose else columns
        narrowed = None if columns == schema.names else columns
        if narrowed is not None:
            schema = pa.schema([schema.field(one) for one in narrowed], metadata=schema.metadata)
        batches = _read_batches(file, schema, name, unpacked_limit or UNPACKED_LIMIT, narrowed)
        return pa.Table.from_batches(batches, schema=schema)
    except (pa.ArrowException, OSError, ValueError):
        raise _unreadable_error(data, name) from None


def flatten(column: "pa.ChunkedArray") -> "pa.Array":
    """Returns the values of all chunks, without a dictionary."""
    import pyarrow as pa

    flat = column.combine_chunks()
    flat = flat if isinstance(flat, pa.Array) else pa.concat_arrays(flat.chunks)
    return flat.dictionary_decode() if pa.types.is_dictionary(flat.type) else flat


def write_parquet(table: "pa.Table") -> bytes:
    """Returns the same bytes for the same table, regardless of its chunks in memory."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink, row_group_size=_group_size(table.schema), **WRITE_OPTIONS)
    return sink.getvalue()


def write_published(table: "pa.Table", declared: Table, *, boxes: bool = False) -> bytes:
    """Returns the published form: the table, with GeoParquet and column metadata in its footer, and the box of each
    geometry if asked for."""
    if boxes:
        table = box_column.add_covering(table, declared)
    return write_parquet(table.replace_schema_metadata(file_metadata(table, declared)))


def _group_size(schema: "pa.Schema") -> int:
    return box_column.ROW_GROUP_SIZE if _has_boxes(schema) else ROW_GROUP_SIZE


def _has_boxes(schema: "pa.Schema") -> bool:
    return COVERING in schema.names and box_column.has_covering(schema)


def rewrite_parquet(data: bytes, name: str) -> bytes:
    """Reads and writes the table again, one row group at a time, because in memory it can take a hundred times more."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    try:
        file, schema = _open(data, name, None)
        with pq.ParquetWriter(sink, schema, **WRITE_OPTIONS) as writer:
            for group in _row_groups(file, schema, name):
                writer.write_table(group.combine_chunks(), row_group_size=_group_size(schema))
    except (pa.ArrowException, OSError, ValueError):
        raise _unreadable_error(data, name) from None
    return sink.getvalue()


def _row_groups(file: "pq.ParquetFile", schema: "pa.Schema", name: str) -> "Iterator[pa.Table]":
    """Yields groups of the size we write, regardless of the groups in the file."""
    import pyarrow as pa

    waiting, size = schema.empty_table(), _group_size(schema)
    for batch in _read_batches(file, schema, name, UNPACKED_LIMIT):
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows > size:
            yield waiting.slice(0, size)
            waiting = waiting.slice(size)
    yield waiting


def _open(data: bytes, name: str, limit: int | None) -> "tuple[pq.ParquetFile, pa.Schema]":
    """Opens the file; with a limit, only if its rows may fit. A text that is stored once can fill a million rows:
    columns in which it might are read as dictionaries, so that their size is known before they are unpacked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data))
    if limit is None:
        return file, file.schema_arrow
    widths = sum(_bit_width(field.type) for field in file.schema_arrow)
    if file.metadata.num_rows * widths // 8 > limit:
        raise _too_large(name, limit)
    repeated = _columns_that_may_repeat(file.metadata, limit)
    if not repeated:
        return file, file.schema_arrow
    if not repeated <= set(file.schema_arrow.names):
        raise _too_large(name, limit)  # inside of lists or structures
    return pq.ParquetFile(pa.BufferReader(data), read_dictionary=sorted(repeated)), file.schema_arrow


def _bit_width(kind: "pa.DataType") -> int:
    try:
        return int(kind.bit_width)
    except ValueError:
        return 0  # of varying length


def _columns_that_may_repeat(metadata: Any, limit: int) -> set[str]:
    """Returns the columns of text or bytes that would exceed the limit if each row had the largest possible value."""
    found = set()
    for group in (metadata.row_group(place) for place in range(metadata.num_row_groups)):
        for chunk in (group.column(place) for place in range(group.num_columns)):
            has_values = chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
            if has_values and chunk.num_values * chunk.total_uncompressed_size > limit:
                found.add(chunk.path_in_schema)
    return found


def _read_batches(
    file: "pq.ParquetFile", schema: "pa.Schema", name: str, limit: int, columns: list[str] | None = None
) -> "Iterator[pa.RecordBatch]":
    """Yields batches with this schema, and counts their unpacked bytes: sizes in the file mean little."""
    size = 0
    for batch in file.iter_batches(batch_size=8192, columns=columns):
        unpacked = _unpack(batch, schema, name, size, limit)
        size += unpacked.nbytes
        if size > limit:
            raise _too_large(name, limit)
        yield unpacked


def _unpack(batch: "pa.RecordBatch", schema: "pa.Schema", name: str, size: int, limit: int) -> "pa.RecordBatch":
    """Replaces dictionaries that only reading has made by their values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(batch.schema):
        kind = schema.field(place).type
        if pa.types.is_dictionary(field.type) and field.type != kind:
            column = batch.column(place)
            size += pc.sum(pc.take(pc.binary_length(column.dictionary), column.indices)).as_py() or 0
            if size > limit:
                raise _too_large(name, limit)
            batch = batch.set_column(place, schema.field(place), column.cast(kind))
    return batch


def _too_large(name: str, limit: int) -> InputUnreadable:
    return InputUnreadable(f"{name} unpacks to more than {limit} bytes")


def _unreadable_error(data: bytes, name: str) -> InputUnreadable:
    """Leaves out Arrow's own message: it can quote the file, whose content not every reader may see."""
    detail = "it is damaged or truncated" if data[:4] == MAGIC else f"it does not begin with {MAGIC.decode()}"
    return InputUnreadable(f"{name} is not a readable Parquet file: {detail}")
