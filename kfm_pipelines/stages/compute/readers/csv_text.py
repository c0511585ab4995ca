"""Reads delimited text: CSV and its relatives."""

import codecs
import csv
import io
from collections import Counter
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Dialect
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.stages.compute.readers.text import parse_declared_columns, wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa

MAX_HEADER_CHARACTERS = 1 << 20


def read_delimited(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    dialect, limits = dataset.input.csv, dataset.input.limits
    text = _decode(data, name, dialect)
    if dialect.quote and text.count(dialect.quote) % 2:
        raise InputUnreadable(f"{name} is not readable as CSV: a quote is never closed")
    lines = _skip_lines(text, dialect.skip_rows)
    header = _read_header(lines, name, dialect)
    limits.refuse(name, columns=len(header))
    wanted = wanted_columns(header, dataset)
    rows = lines.count("\n")
    limits.refuse(name, rows=rows, unpacked_bytes=len(text) + 8 * rows * len(wanted))
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(lines.encode()),
            read_options=pa_csv.ReadOptions(column_names=_unique(header), skip_rows_after_names=1),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter, quote_char=dialect.quote or False, newlines_in_values=True
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                null_values=["", *dialect.nulls],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        count = len(header)
        raise InputUnreadable(
            f"{name} is not readable as CSV: a row does not have {count} values, as the header"
        ) from None
    return parse_declared_columns(table, dataset)


def _decode(data: bytes, name: str, dialect: Dialect) -> str:
    try:
        text = codecs.decode(data, dialect.encoding)
    except UnicodeDecodeError:
        raise InputUnreadable(f"{name} is not text in {dialect.encoding}; declare its encoding") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _skip_lines(text: str, count: int) -> str:
    start = 0
    for _ in range(count):
        start = text.find("\n", start) + 1
        if not start:
            return ""
    return text[start:]


def _read_header(lines: str, name: str, dialect: Dialect) -> list[str]:
    reader = csv.reader(
        io.StringIO(lines[:MAX_HEADER_CHARACTERS]),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote or None,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
    )
    try:
        header = [column.strip() for column in next(reader, [])]
    except csv.Error:
        header = []
    if not any(header):
        raise InputUnreadable(f"{name} is not readable as CSV: it has no header")
    repeated = [column for column, count in Counter(header).items() if count > 1 and column]
    if repeated:
        raise InputUnreadable(f"{name}: the column {repeated[0][:80]!r} is in the file more than once")
    return header


def _unique(header: list[str]) -> list[str]:
    """Names columns without a name by their place, so that Arrow can tell them apart."""
    return [column or f"column {place}" for place, column in enumerate(header, start=1)]
