"""Names, types and texts that all sections of a declaration share, and the strict model they are read with."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

KeyPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
ColumnName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
# A geometry is WKB in degrees east and north (OGC:CRS84).
ColumnType = Literal["string", "int64", "float64", "bool", "timestamp", "date", "geometry"]
# `place` is anything else that reveals a place: grid coordinates, cell ids, geohashes, directions.
LocationRole = Literal["longitude", "latitude", "geometry", "place"]
NonEmptyText = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
# What Dagster accepts. It would refuse anything else while loading the definitions, and take all datasets down.
Owner = Annotated[str, StringConstraints(pattern=r"^(team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,63}$")]
WindowLength = Literal["hour", "day", "week", "month", "year"]  # weeks are those of ISO 8601

_NAME = r"[a-z0-9]+([_-][a-z0-9]+)*"
EVENT_SOURCE = rf"kfm\.{_NAME}\.{_NAME}"  # also in the contract of FIFO envelopes


class DeclarationModel(BaseModel):
    """A section of a declaration: no unknown fields, no conversions, immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
