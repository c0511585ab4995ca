"""Parquet bytes: reading what strangers send, and writing the one canonical form that is published."""

import io
from typing import TYPE_CHECKING

from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# A small file can unpack into more memory than the machine has.
UNPACKED_LIMIT = 4 * 1024**3
MAGIC = b"PAR1"


def read_parquet(data: bytes, name: str) -> "pa.Table":
    """The table in these bytes; InputUnreadable, naming the object, when they are no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _unpacked(pq.ParquetFile(io.BytesIO(data)), name)
    except (pa.ArrowException, OSError, ValueError):
        # Arrow's own words can quote what is in the file, and these are read by people who may not see that.
        detail = "it is damaged or cut off" if data[:4] == MAGIC else f"it does not begin with {MAGIC.decode()}"
        raise InputUnreadable(f"{name} is not a readable Parquet file: {detail}") from None


def write_parquet(table: "pa.Table") -> bytes:
    """The same table always gives the same bytes, however it came to lie in memory."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(
        table.combine_chunks(), sink, compression="zstd", compression_level=3, row_group_size=128 * 1024, version="2.6"
    )
    return sink.getvalue()


def _unpacked(file: "pq.ParquetFile", name: str) -> "pa.Table":
    """Batch by batch, counting: what the file says of its size means little, because a text it holds once can be the
    value of a million rows."""
    import pyarrow as pa

    batches, size = [], 0
    for batch in file.iter_batches(batch_size=8192):
        size += batch.nbytes
        if size > UNPACKED_LIMIT:
            raise InputUnreadable(f"{name} unpacks to more than {UNPACKED_LIMIT} bytes")
        batches.append(batch)
    return pa.Table.from_batches(batches, schema=file.schema_arrow)
