"""Reads newline-delimited JSON: one object a line.

msgspec parses it, because Arrow's own reader ends the process when values are nested deeply.
"""

from itertools import islice
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.stages.compute.readers.text import parse_declared_columns, wanted_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

ROWS_AT_ONCE = 20_000


def read_json_lines(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    import pyarrow as pa

    limits, unpacked = dataset.input.limits, 0
    limits.refuse(name, rows=data.count(b"\n"))
    rows = _decode_rows(data, name)
    parts: list[pa.Table] = []
    while batch := list(islice(rows, ROWS_AT_ONCE)):
        parts.append(_build_table(batch, name, dataset))
        unpacked += parts[-1].nbytes
        limits.refuse(name, unpacked_bytes=unpacked)
    if not parts:
        raise InputUnreadable(f"{name} is empty; newline-delimited JSON has one object a line")
    try:
        table = pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException:
        raise InputUnreadable(f"{name}: a column has values of different types") from None
    return parse_declared_columns(table, dataset)


def _decode_rows(data: bytes, name: str) -> "Iterator[dict[str, Any]]":
    import msgspec

    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            raise InputUnreadable(f"{name} is not newline-delimited JSON: line {number} is not one object") from None


def _build_table(rows: list[dict[str, Any]], name: str, dataset: Dataset) -> "pa.Table":
    import pyarrow as pa

    found = dict.fromkeys(column for row in rows for column in row)
    dataset.input.limits.refuse(name, columns=len(found))
    columns = wanted_columns(found, dataset)
    try:
        return pa.table({column: pa.array([row.get(column) for row in rows]) for column in columns})
    except (pa.ArrowException, OverflowError):
        raise InputUnreadable(f"{name}: a column has values of different types") from None
