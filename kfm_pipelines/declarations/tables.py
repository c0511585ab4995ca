"""The table of a dataset: its columns, which of them identify, date and locate a row, and its Arrow schema."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations.words import ColumnName, ColumnType, DeclarationModel, LocationRole, NonEmptyText

if TYPE_CHECKING:
    import pyarrow as pa

TransformName = Literal["metric_discharge"]


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

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("columns has the same name twice")
        found_in = [column.source or column.name for column in self.columns if not column.derived]
        if len(set(found_in)) != len(found_in):
            raise ValueError("columns has the same source twice")
        if (self.longitude_column is None) != (self.latitude_column is None):
            raise ValueError("longitude_column and latitude_column go together")
        self._check_type(self.time_column, ("timestamp", "date"))
        self._check_type(self.longitude_column, ("float64",))
        self._check_type(self.latitude_column, ("float64",))
        self._check_type(self.geometry_column, ("geometry",))
        for name in self.primary_key:
            self.column(name)
        for column in self.columns:
            self._check_derived(column)
        self._check_conflicts()
        return self

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(f"{name!r} is not one of the columns {', '.join(column.name for column in self.columns)}")

    @property
    def identity_columns(self) -> list[str]:
        """The primary key as the objects have it."""
        return [name for name in self.primary_key if name != self.revision_column]

    @property
    def digest_document(self) -> dict[str, Any]:
        """The declaration without rules for conflicts where there are none, as it was before there were any."""
        rules = {"on_conflict", "order_by", "revision_column"}
        return self.model_dump(mode="json", exclude=rules if self.on_conflict == "refuse" else None)

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
    def derived_column(self) -> Column | None:
        return next((column for column in self.columns if column.derived), None)

    def _check_derived(self, column: Column) -> None:
        if column.derived is None:
            return
        if self.longitude_column is None or self.latitude_column is None:
            raise ValueError(f"{column.name!r} is derived, which needs longitude_column and latitude_column")
        if column.name != self.geometry_column:
            raise ValueError(f"{column.name!r} is derived, so it must be the geometry_column")
        if column.source is not None:
            raise ValueError(f"{column.name!r} is derived, so it cannot have a source")
        nullable = self.column(self.longitude_column).nullable or self.column(self.latitude_column).nullable
        if column.nullable != nullable:
            raise ValueError(
                f"{column.name!r} must have nullable: {str(nullable).lower()}, like the columns it is derived from"
            )
        if column.name in self.primary_key:
            raise ValueError(f"{column.name!r} is derived, so it cannot be in the primary_key")

    def _check_conflicts(self) -> None:
        if self.on_conflict == "refuse" and (self.order_by or self.revision_column):
            raise ValueError("order_by and revision_column need on_conflict: newest or keep_both")
        if self.on_conflict != "refuse" and not self.order_by:
            raise ValueError(f"on_conflict: {self.on_conflict} needs order_by, the columns that say which row is newer")
        for order in self.order_by:
            if order.ranks is not None and self.column(order.column).type != "string":
                raise ValueError(f"order_by: {order.column!r} has ranks, so it must be of type string")
            self.column(order.column)
        if (self.on_conflict == "keep_both") != (self.revision_column is not None):
            raise ValueError("revision_column and on_conflict: keep_both go together")
        self._check_type(self.revision_column, ("int64",))
        if self.revision_column is not None and self.revision_column not in self.primary_key:
            raise ValueError(f"{self.revision_column!r} must be in the primary_key, because it tells the rows apart")

    def _check_type(self, name: str | None, expected: tuple[ColumnType, ...]) -> None:
        if name is not None and (found := self.column(name).type) not in expected:
            raise ValueError(f"{name!r} must be of type {' or '.join(expected)}, not {found}")


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
