"""The table of a dataset: its columns, which of them identify, date and locate a row, and its Arrow schema; and the
Iceberg table of all its keys."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from kfm_pipelines.declarations.faults import Fault, refuse
from kfm_pipelines.declarations.words import ColumnName, ColumnType, DeclarationModel, LocationRole, NonEmptyText

if TYPE_CHECKING:
    import pyarrow as pa

JoinName = Literal["drought_streamflow"]  # of a derived dataset: the tables of all its upstreams as one
TransformName = Literal["metric_discharge", JoinName]
OWN_PREFIX = "kfm_"  # of the columns that the table has besides those of the dataset
JOINS: tuple[str, ...] = get_args(JoinName)


class Column(DeclarationModel):
    name: ColumnName
    type: ColumnType
    nullable: bool
    unit: str | None = None
    description: str
    source: NonEmptyText | None = None  # the column's name in the input objects, if different
    holds: LocationRole | None = None  # what it reveals about a place; decides what is masked
    derived: Literal["point"] | None = None  # computed from longitude and latitude; not in the input objects


class Order(DeclarationModel):
    """What decides which of two rows with the same primary key is newer: the larger value, or the later rank."""

    column: ColumnName
    ranks: Annotated[list[str], Field(min_length=1)] | None = None
    # Between the parts of a value that has several, such as `A,P`. Its part with the earliest rank counts first, then
    # the one with the latest; parts without a rank do not count.
    separator: NonEmptyText | None = None


class Table(DeclarationModel):
    primary_key: Annotated[list[ColumnName], Field(min_length=1)]
    time_column: ColumnName | None = None
    longitude_column: ColumnName | None = None
    latitude_column: ColumnName | None = None
    geometry_column: ColumnName | None = None
    columns: Annotated[list[Column], Field(min_length=1)]
    on_conflict: Literal["refuse", "newest", "keep_both"] = "refuse"  # rows that differ but have one primary key
    order_by: list[Order] = Field(default_factory=list)
    revision_column: ColumnName | None = None  # numbers such rows if both are kept
    outside_window: Literal["refuse", "clip"] = "refuse"  # rows whose time is in the window of another key

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        refuse(self.faults())
        return self

    def faults(self) -> Iterator[Fault]:
        yield from self._name_faults()
        yield from self._role_faults()
        for place, column in enumerate(self.columns):
            if column.derived is not None:
                yield from (Fault(sentence, ("columns", place)) for sentence in self._derivation_faults(column))
        yield from self._conflict_faults()

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(self.unknown(name))

    def unknown(self, name: str) -> str:
        return f"{name!r} is not one of the columns {', '.join(column.name for column in self.columns)}"

    @property
    def identity_columns(self) -> list[str]:
        """The primary key as the objects have it."""
        return [name for name in self.primary_key if name != self.revision_column]

    @property
    def digest_document(self) -> dict[str, Any]:
        """The declaration without rules for conflicts where there are none, as it was before there were any."""
        rules = {"on_conflict", "order_by", "revision_column"} if self.on_conflict == "refuse" else set()
        document = self.model_dump(mode="json", exclude=rules)
        if self.outside_window == "refuse":  # likewise
            del document["outside_window"]
        for order in document.get("order_by", ()):
            if order["separator"] is None:  # likewise
                del order["separator"]
        return document

    @property
    def place_columns(self) -> list[str]:
        """Every column that reveals a place, in order."""
        named = {self.longitude_column, self.latitude_column, self.geometry_column}
        return [
            column.name
            for column in self.columns
            if column.name in named or column.holds is not None or column.type == "geometry"
        ]

    @property
    def position_columns(self) -> list[str]:
        """Where a row lies: its longitude and latitude, or else its geometry."""
        pair = [name for name in (self.longitude_column, self.latitude_column) if name]
        return pair or ([self.geometry_column] if self.geometry_column else [])

    @property
    def derived_column(self) -> Column | None:
        return next((column for column in self.columns if column.derived), None)

    def _name_faults(self) -> Iterator[Fault]:
        names = [column.name for column in self.columns]
        for place, name in enumerate(names):
            if name in names[:place]:
                yield Fault(f"columns has the same name twice: {name!r}", ("columns", place, "name"))
        found_in = [None if column.derived else column.source or column.name for column in self.columns]
        for place, source in enumerate(found_in):
            if source is not None and source in found_in[:place] and names[place] not in names[:place]:
                yield Fault(f"columns has the same source twice: {source!r}", ("columns", place))

    def _role_faults(self) -> Iterator[Fault]:
        if (self.longitude_column is None) != (self.latitude_column is None):
            yield Fault("longitude_column and latitude_column go together")
        yield from self._type_faults("time_column", ("timestamp", "date"))
        if self.outside_window == "clip" and self.time_column is None:
            yield Fault("outside_window: clip needs time_column", ("outside_window",))
        yield from self._type_faults("longitude_column", ("float64",))
        yield from self._type_faults("latitude_column", ("float64",))
        yield from self._type_faults("geometry_column", ("geometry",))
        known = {column.name for column in self.columns}
        for place, name in enumerate(self.primary_key):
            if name not in known:
                yield Fault(self.unknown(name), ("primary_key", place))

    def _derivation_faults(self, column: Column) -> Iterator[str]:
        types = {one.name: one for one in self.columns}
        pair = [types.get(name) for name in (self.longitude_column, self.latitude_column) if name is not None]
        if len(pair) < 2:
            yield f"{column.name!r} is derived, which needs longitude_column and latitude_column"
        if column.name != self.geometry_column:
            yield f"{column.name!r} is derived, so it must be the geometry_column"
        if column.source is not None:
            yield f"{column.name!r} is derived, so it cannot have a source"
        nullable = any(one is not None and one.nullable for one in pair)
        if len(pair) == 2 and None not in pair and column.nullable != nullable:
            yield f"{column.name!r} must have nullable: {str(nullable).lower()}, like the columns it is derived from"
        if column.name in self.primary_key:
            yield f"{column.name!r} is derived, so it cannot be in the primary_key"

    def _conflict_faults(self) -> Iterator[Fault]:
        if self.on_conflict == "refuse" and (self.order_by or self.revision_column):
            yield Fault("order_by and revision_column need on_conflict: newest or keep_both", ("on_conflict",))
        if self.on_conflict != "refuse" and not self.order_by:
            sentence = f"on_conflict: {self.on_conflict} needs order_by, the columns that say which row is newer"
            yield Fault(sentence, ("on_conflict",))
        types = {column.name: column.type for column in self.columns}
        for place, order in enumerate(self.order_by):
            path = ("order_by", place, "column")
            if order.column not in types:
                yield Fault(self.unknown(order.column), path)
            elif order.ranks is not None and types[order.column] != "string":
                yield Fault(f"order_by: {order.column!r} has ranks, so it must be of type string", path)
            if order.separator is not None and order.ranks is None:
                yield Fault("order_by: separator needs ranks", ("order_by", place, "separator"))
        if (self.on_conflict == "keep_both") != (self.revision_column is not None):
            yield Fault("revision_column and on_conflict: keep_both go together", ("on_conflict",))
        yield from self._type_faults("revision_column", ("int64",))
        if self.revision_column is not None and self.revision_column not in self.primary_key:
            sentence = f"{self.revision_column!r} must be in the primary_key, because it tells the rows apart"
            yield Fault(sentence, ("revision_column",))

    def _type_faults(self, role: str, expected: tuple[ColumnType, ...]) -> Iterator[Fault]:
        name = getattr(self, role)
        found = {column.name: column.type for column in self.columns}
        if name is not None and name not in found:
            yield Fault(self.unknown(name), (role,))
        elif name is not None and found[name] not in expected:
            yield Fault(f"{name!r} must be of type {' or '.join(expected)}, not {found[name]}", (role,))


class IcebergTable(DeclarationModel):
    """How the table is partitioned, and how long its history is kept. Declared as `tables: iceberg` or as a section."""

    format: Literal["iceberg"] = "iceberg"
    # By the beginning of the windows. By default months of hours, and years of what is longer.
    period: Literal["day", "month", "year"] | None = None
    # Also by the H3 cell of each row, at this resolution: at most the one that is published.
    cells: Annotated[int, Field(ge=0, le=5)] | None = None
    history_days: Annotated[int, Field(ge=1, le=3650)] = 90

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, values: Any) -> Any:
        return {"format": values} if isinstance(values, str) else values


def iceberg_faults(declared: IcebergTable | None, table: Table) -> Iterator[Fault]:
    """Yields why this table of a dataset cannot be an Iceberg table as declared."""
    if declared is None:
        return
    for place, column in enumerate(table.columns):
        if column.name.startswith(OWN_PREFIX):
            sentence = f"tables: columns of the Iceberg table that begin with {OWN_PREFIX} are ours: {column.name!r}"
            yield Fault(sentence, ("table", "columns", place, "name"))
    if declared.cells is not None and not table.place_columns:
        yield Fault("tables.cells needs rows with a place, and no column holds one", ("tables", "cells"))


def declared_schema(table: Table) -> "pa.Schema":
    """Returns the Arrow schema, with units and descriptions as field metadata."""
    import pyarrow as pa

    fields = []
    for column in table.columns:
        metadata = {"description": column.description} | ({"unit": column.unit} if column.unit else {})
        fields.append(pa.field(column.name, arrow_type(column.type), nullable=column.nullable, metadata=metadata))
    return pa.schema(fields)


def unit_of(field: "pa.Field") -> str | None:
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
