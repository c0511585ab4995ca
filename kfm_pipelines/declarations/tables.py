"""The table of a dataset: its columns, and which of them say what a row is, when and where."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations.words import ColumnName, ColumnType, DeclarationModel, LocationRole, NonEmptyText


class Column(DeclarationModel):
    name: ColumnName
    type: ColumnType
    nullable: bool
    unit: str | None = None
    description: str
    source: NonEmptyText | None = None  # what the column is called in the objects, when that is another name
    holds: LocationRole | None = None  # what it tells of where something is; masking goes by this
    derived: Literal["point"] | None = None  # made here of longitude and latitude; no object has it


class Table(DeclarationModel):
    """A table: columns in order, and which of them say what a row is, when and where."""

    primary_key: Annotated[list[ColumnName], Field(min_length=1)]
    time_column: ColumnName | None = None
    longitude_column: ColumnName | None = None
    latitude_column: ColumnName | None = None
    geometry_column: ColumnName | None = None
    columns: Annotated[list[Column], Field(min_length=1)]

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
        return self

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(f"{name!r} is not one of the columns {', '.join(column.name for column in self.columns)}")

    @property
    def place_columns(self) -> list[str]:
        """Every column a place can be told from, in order."""
        named = {self.longitude_column, self.latitude_column, self.geometry_column}
        return [
            column.name
            for column in self.columns
            if column.name in named or column.holds is not None or column.type == "geometry"
        ]

    @property
    def derived_column(self) -> Column | None:
        """The column that no object has."""
        return next((column for column in self.columns if column.derived), None)

    def _check_derived(self, column: Column) -> None:
        """What is made of two columns is there where both are, and says nothing that they do not."""
        if column.derived is None:
            return
        if self.longitude_column is None or self.latitude_column is None:
            raise ValueError(f"{column.name!r} is derived, which takes longitude_column and latitude_column")
        if column.name != self.geometry_column:
            raise ValueError(f"{column.name!r} is derived, so it must be the geometry_column")
        if column.source is not None:
            raise ValueError(f"{column.name!r} is derived, so it has no source")
        nullable = self.column(self.longitude_column).nullable or self.column(self.latitude_column).nullable
        if column.nullable != nullable:
            raise ValueError(f"{column.name!r} must have nullable: {str(nullable).lower()}, as what it is derived from")
        if column.name in self.primary_key:
            raise ValueError(f"{column.name!r} is derived, so it cannot be in the primary_key")

    def _check_type(self, name: str | None, expected: tuple[ColumnType, ...]) -> None:
        """What says when or where has to be able to; the gates compare it."""
        if name is not None and (found := self.column(name).type) not in expected:
            raise ValueError(f"{name!r} must be of type {' or '.join(expected)}, not {found}")


TransformName = Literal["metric_discharge"]
