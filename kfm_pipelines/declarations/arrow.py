"""Declared tables as Arrow schemas: the one place that says which Arrow type a declared type is."""

from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Column, ColumnType, Table

if TYPE_CHECKING:
    import pyarrow as pa


def declared_schema(table: Table) -> "pa.Schema":
    """The Arrow schema of a declared table, with units and descriptions on the fields."""
    import pyarrow as pa

    return pa.schema([_field(column) for column in table.columns])


def unit_of(field: "pa.Field") -> str | None:
    """What a field says its numbers are in."""
    stated = (field.metadata or {}).get(b"unit")
    return stated.decode("utf-8", "replace") if stated else None


def arrow_type(name: ColumnType) -> "pa.DataType":
    import pyarrow as pa

    types: dict[ColumnType, pa.DataType] = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
        "geometry": pa.binary(),
    }
    return types[name]


def _field(column: Column) -> "pa.Field":
    import pyarrow as pa

    metadata = {"description": column.description}
    if column.unit:
        metadata["unit"] = column.unit
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable, metadata=metadata)
