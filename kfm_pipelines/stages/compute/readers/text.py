"""Chooses the columns that are read, and parses text into declared types for formats that have none of their own."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Column
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa


def wanted_columns(found: Iterable[str], dataset: Dataset) -> list[str]:
    """Returns which of the columns found in an object are read."""
    declared = {column.source or column.name for column in dataset.table.columns}
    return [name for name in found if name and (dataset.input.columns == "all" or name in declared)]


def parse_declared_columns(table: "pa.Table", dataset: Dataset) -> "pa.Table":
    """Parses each declared column of text. One that cannot be parsed as a whole stays text, for the schema gate."""
    import pyarrow as pa

    declared = {column.source or column.name: column for column in dataset.table.columns}
    for place, field in enumerate(table.schema):
        column = declared.get(field.name)
        if column is not None and column.type != "string" and pa.types.is_string(field.type):
            table = table.set_column(place, field.name, _parse(table.column(place), column, dataset))
    return table


def _parse(texts: "pa.ChunkedArray", column: Column, dataset: Dataset) -> "pa.ChunkedArray":
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(texts)
    values = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    target = arrow_type(column.type)
    try:
        return values.cast(target)
    except pa.ArrowException:
        pass
    if column.type == "timestamp" and dataset.input.timezone is not None:
        try:  # an hour that a change of clocks repeats or leaves out is refused, not guessed
            local = values.cast(pa.timestamp("us"))
            return pc.assume_timezone(local, dataset.input.timezone).cast(target)
        except (pa.ArrowException, ValueError):
            pass
    return texts
