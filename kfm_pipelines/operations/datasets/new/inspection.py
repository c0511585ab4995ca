"""What one object shows of the dataset it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from kfm_pipelines.declarations.identity import BBox
from kfm_pipelines.declarations.words import ColumnType, LocationRole


@dataclass(frozen=True, slots=True)
class FoundColumn:
    name: str
    type: ColumnType
    nullable: bool
    source: str | None = None  # its name in the object, if that cannot be a declared one
    unit: str | None = None
    holds: LocationRole | None = None
    derived: bool = False
    null_share: float = 0.0
    bounds: tuple[float, float] | None = None  # of numbers that are no places


@dataclass(frozen=True, slots=True)
class FoundBand:
    name: str
    source: int | str
    unit: str
    description: str
    bounds: tuple[float, float] | None = None
    sentinels: tuple[float, ...] = ()
    step: int | None = None  # which of several times or levels
    missing_share: float = 0.0  # of pixels that have no value


@dataclass(frozen=True, slots=True)
class FoundTable:
    """`unsure` are sentences about what the writer of the declaration must look at."""

    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...]
    time_column: str | None = None
    longitude_column: str | None = None
    latitude_column: str | None = None
    geometry_column: str | None = None
    extent: BBox | None = None
    times: tuple[datetime, datetime] | None = None
    left_out: tuple[str, ...] = ()  # columns that have no declared type
    timezone: str | None = None
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectInspection:
    """Either a table, of features or not, or bands."""

    format: str
    processor: Literal["table", "vector", "raster"]
    table: FoundTable | None = None
    bands: tuple[FoundBand, ...] = ()
    grid: Mapping[str, Any] | None = None
    extent: BBox | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of `input`
    layer: str | None = None
    unsure: tuple[str, ...] = ()
