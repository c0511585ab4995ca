"""The words a declaration is written in: what names, types and texts may look like, and how strictly it is read."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

KeyPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
ColumnName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
# A geometry is WKB in degrees east and north (OGC:CRS84).
ColumnType = Literal["string", "int64", "float64", "bool", "timestamp", "date", "geometry"]
# `place` is whatever else a place can be told from: grid coordinates, cell ids, geohashes, directions.
LocationRole = Literal["longitude", "latitude", "geometry", "place"]
NonEmptyText = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
# What Dagster accepts: anything else would only come out when it loads the definitions, and take all datasets down.
Owner = Annotated[str, StringConstraints(pattern=r"^(team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,63}$")]
WindowLength = Literal["hour", "day", "month"]

_NAME = r"[a-z0-9]+([_-][a-z0-9]+)*"
EVENT_SOURCE = rf"kfm\.{_NAME}\.{_NAME}"  # also in the contract of FIFO envelopes


class DeclarationModel(BaseModel):
    """A piece of a declaration: nothing unknown, nothing converted, nothing changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
