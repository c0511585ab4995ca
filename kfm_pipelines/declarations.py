"""What a dataset's declaration may say, piece by piece: key, input, table, limits.

Belongs here: each piece and whether it makes sense by itself. Does not: whether the pieces, or several declarations,
agree (`datasets`).
"""

import re
from itertools import pairwise
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

KeyPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
ColumnName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
# A geometry is WKB in degrees east and north (OGC:CRS84).
ColumnType = Literal["string", "int64", "float64", "bool", "timestamp", "date", "geometry"]
# `place` is whatever else a place can be told from: grid coordinates, cell ids, geohashes, directions.
Whereabouts = Literal["longitude", "latitude", "geometry", "place"]
Words = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
# What Dagster accepts: anything else would only come out when it loads the definitions, and take all datasets down.
Owner = Annotated[str, StringConstraints(pattern=r"^(team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,63}$")]
WindowLength = Literal["hour", "day", "month"]

_NAME = r"[a-z0-9]+([_-][a-z0-9]+)*"
EVENT_SOURCE = rf"kfm\.{_NAME}\.{_NAME}"  # also in the contract of FIFO envelopes


class Declared(BaseModel):
    """A piece of a declaration: nothing unknown, nothing converted, nothing changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Licence(Declared):
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.+-]+$")]
    url: Words


class Provider(Declared):
    name: str
    roles: list[Literal["licensor", "producer", "processor", "host"]]
    url: str | None = None


class KeyTemplate(Declared):
    """The parts of the canonical key that are the same for every window."""

    source: KeyPart
    aoi: KeyPart
    h3_res: Annotated[str, StringConstraints(pattern=r"^(none|[0-9]|1[0-5])$")]
    window: WindowLength
    transform_version: KeyPart


class EventTemplate(Declared):
    """Which object is meant by an event of this source that names none, in terms of what its payload says.

    `{name}` is a field of the payload, `{event_time:%Y/%m/%d}` the time of the event. Nothing else of Python's format
    language passes, so a declaration can reach no attribute and no index of what it is filled with.
    """

    source: Annotated[str, StringConstraints(pattern=rf"^{EVENT_SOURCE}$")]
    object_key: str

    @field_validator("object_key")
    @classmethod
    def _reads(cls, template: str) -> str:
        for literal, field, spec, conversion in Formatter().parse(template):
            if not re.fullmatch(r"[A-Za-z0-9_./-]*", literal):
                raise ValueError(f"may have letters, digits and _ . / - between fields, not {literal!r}")
            if field is not None and not _is_plain(field, spec or "", conversion):
                raise ValueError(f"has a field {field!r} that is neither {{name}} nor {{event_time:%Y…}}")
        return template

    @property
    def payload_fields(self) -> frozenset[str]:
        named = (field for _, field, _, _ in Formatter().parse(self.object_key) if field)
        return frozenset(named) - {"event_time"}


def _is_plain(field: str, spec: str, conversion: str | None) -> bool:
    wanted = r"(%[YmdHMSj]|[A-Za-z0-9_./-])+" if field == "event_time" else r""
    return bool(conversion is None and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field) and re.fullmatch(wanted, spec))


class Input(Declared):
    """Where objects of this dataset may come from, how a path names its window, and which events stand for a path."""

    bucket: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    prefix: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_.-]+/)+$")]
    object_pattern: str
    format: Literal["parquet"]
    max_bytes: Annotated[int, Field(gt=0)]
    events: list[EventTemplate] = Field(default_factory=list)

    @field_validator("object_pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _events_agree(self) -> Self:
        sources = [event.source for event in self.events]
        if len(set(sources)) != len(sources):
            raise ValueError("events has the same source twice")
        for event in self.events:
            if not event.object_key.startswith(self.prefix):
                raise ValueError(f"events: object_key {event.object_key!r} must begin with the prefix {self.prefix!r}")
        return self


class Column(Declared):
    name: ColumnName
    type: ColumnType
    nullable: bool
    unit: str | None = None
    description: str
    source: Words | None = None  # what the column is called in the objects, when that is another name
    holds: Whereabouts | None = None  # what it tells of where something is; masking goes by this


class Table(Declared):
    """A table: columns in order, and which of them say what a row is, when and where."""

    primary_key: Annotated[list[ColumnName], Field(min_length=1)]
    time_column: ColumnName | None = None
    longitude_column: ColumnName | None = None
    latitude_column: ColumnName | None = None
    geometry_column: ColumnName | None = None
    columns: Annotated[list[Column], Field(min_length=1)]

    @model_validator(mode="after")
    def _named_columns_exist(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("columns has the same name twice")
        found_in = [column.source or column.name for column in self.columns]
        if len(set(found_in)) != len(found_in):
            raise ValueError("columns has the same source twice")
        if (self.longitude_column is None) != (self.latitude_column is None):
            raise ValueError("longitude_column and latitude_column go together")
        self._refuse_type(self.time_column, ("timestamp", "date"))
        self._refuse_type(self.longitude_column, ("float64",))
        self._refuse_type(self.latitude_column, ("float64",))
        self._refuse_type(self.geometry_column, ("geometry",))
        for name in self.primary_key:
            self.column(name)
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

    def _refuse_type(self, name: str | None, expected: tuple[ColumnType, ...]) -> None:
        """What says when or where has to be able to; the gates compare it."""
        if name is not None and (found := self.column(name).type) not in expected:
            raise ValueError(f"{name!r} must be of type {' or '.join(expected)}, not {found}")


class Extent(Declared):
    """The rectangle all places of a dataset lie in, in degrees."""

    west: Annotated[float, Field(ge=-180, le=180)]
    south: Annotated[float, Field(ge=-90, le=90)]
    east: Annotated[float, Field(ge=-180, le=180)]
    north: Annotated[float, Field(ge=-90, le=90)]

    @model_validator(mode="after")
    def _has_an_inside(self) -> Self:
        if self.west >= self.east or self.south >= self.north:
            raise ValueError("west must be less than east, and south less than north")
        return self


class Sovereignty(Declared):
    """Whose data it is, whoever holds it, and what every reader is told about that."""

    nations: Words
    notice: Words


class PrefixLimit(Declared):
    """At most so many runs at once over keys that begin like this."""

    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_:-]*$")]
    runs: Annotated[int, Field(ge=1, le=8)]  # dagster.yaml has a limit for each of these


class Concurrency(Declared):
    """What may not happen at once; nothing is said by default, because claims already keep a key to one run."""

    serial: bool = False
    limits: list[PrefixLimit] = []

    @model_validator(mode="after")
    def _prefixes_are_apart(self) -> Self:
        ordered = sorted(limit.prefix for limit in self.limits)
        for shorter, longer in pairwise(ordered):
            if longer.startswith(shorter):
                raise ValueError(f"limits: prefix {longer!r} lies within {shorter!r}; a key may be under one only")
        return self

    def limit_of(self, key: str) -> PrefixLimit | None:
        return next((limit for limit in self.limits if key.startswith(limit.prefix)), None)
