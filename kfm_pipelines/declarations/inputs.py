"""The input of a dataset: where its objects are, how they are written, and which object a producer's event means; or
the datasets whose published keys it is made of."""

import re
from collections.abc import Mapping
from string import Formatter
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints, field_validator, model_validator

from kfm_pipelines.declarations.upstreams import Upstream
from kfm_pipelines.declarations.words import EVENT_SOURCE, DeclarationModel
from kfm_pipelines.errors import InputUnreadable

# A folder is a product of several objects, which stays where it is.
Format = Literal[
    "parquet", "csv", "ndjson", "usgs-iv",
    "geojson", "geopackage", "shapefile",
    "geotiff", "grib2", "netcdf", "nexrad-level3",
    "folder",
]  # fmt: skip
RASTER_FORMATS: frozenset[Format] = frozenset({"geotiff", "grib2", "netcdf", "nexrad-level3"})
# What a dataset without objects has instead of them.
NO_OBJECTS: Mapping[str, str] = {"bucket": "", "prefix": "", "object_pattern": "", "format": "parquet"}
OneCharacter = Annotated[str, StringConstraints(pattern=r"^[^\r\n]$")]


class EventTemplate(DeclarationModel):
    """The object that an event of this source means if it names none.

    `{name}` is a field of the payload, `{event_time:%Y/%m/%d}` the time of the event. The rest of Python's format
    language is refused, so that a declaration cannot reach attributes or indexes of the values.
    """

    source: Annotated[str, StringConstraints(pattern=rf"^{EVENT_SOURCE}$")]
    object_key: str

    @field_validator("object_key")
    @classmethod
    def _check_template(cls, template: str) -> str:
        for literal, field, spec, conversion in Formatter().parse(template):
            if not re.fullmatch(r"[A-Za-z0-9_./-]*", literal):
                raise ValueError(f"may have letters, digits and _ . / - between fields, not {literal!r}")
            if field is not None and not _is_allowed_field(field, spec or "", conversion):
                raise ValueError(f"has a field {field!r} that is neither {{name}} nor {{event_time:%Y…}}")
        return template

    @property
    def payload_fields(self) -> frozenset[str]:
        named = (field for _, field, _, _ in Formatter().parse(self.object_key) if field)
        return frozenset(named) - {"event_time"}


def _is_allowed_field(field: str, spec: str, conversion: str | None) -> bool:
    wanted = r"(%[YmdHMSj]|[A-Za-z0-9_./-])+" if field == "event_time" else r""
    return bool(conversion is None and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field) and re.fullmatch(wanted, spec))


class Dialect(DeclarationModel):
    """How a delimited text is written."""

    delimiter: OneCharacter = ","
    quote: OneCharacter | None = '"'
    encoding: Literal["utf-8", "utf-16", "latin-1", "windows-1252"] = "utf-8"
    skip_rows: Annotated[int, Field(ge=0, le=1000)] = 0  # lines before the header
    nulls: list[str] = Field(default_factory=list)  # texts that mean no value, besides none at all


class Limits(DeclarationModel):
    """How much an object may unpack to; a small file can unpack to more than the machine has."""

    rows: Annotated[int, Field(gt=0)] = 50_000_000
    columns: Annotated[int, Field(gt=0)] = 10_000
    vertices: Annotated[int, Field(gt=0)] = 50_000_000
    unpacked_bytes: Annotated[int, Field(gt=0, lt=2**31)] = 2**30  # a column of text in Arrow has less than 2 GiB
    pixels: Annotated[int, Field(gt=0)] = 200_000_000  # of a raster as it is declared, and of all bands that are read

    def refuse(self, name: str, **found: int) -> None:
        """Raises InputUnreadable if one of these counts is above its limit."""
        for what, count in found.items():
            if count > (allowed := getattr(self, what)):
                words = "unpacks to" if what == "unpacked_bytes" else "has"
                unit = what.removeprefix("unpacked_")
                raise InputUnreadable(f"{name} {words} {count} {unit}; input.limits.{what} allows {allowed}")


class Feed(DeclarationModel):
    """A topic and a bucket of another account. Nothing of them is created, versioned or changed."""

    topic: Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$")]
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")] | None = None  # of the bucket
    requester_pays: bool = False
    signature: Literal["required", "unchecked"] = "unchecked"  # of SNS, on each message

    @property
    def topic_region(self) -> str:
        return self.topic.split(":")[3]


class Input(DeclarationModel):
    """Objects in a bucket; or, of a derived dataset, what its upstreams have published."""

    upstream: list[Upstream] = Field(default_factory=list)
    bucket: Annotated[str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$")]
    prefix: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_.-]+/)*$")]
    object_pattern: str
    provider: Feed | None = None  # None: the bucket is ours, and announces its objects to our topic
    format: Format
    formats: dict[str, Format] = Field(default_factory=dict)  # of objects whose names end otherwise, such as .json
    csv: Dialect = Dialect()
    timezone: str | None = None  # of times in text without an offset
    columns: Literal["all", "declared"] = "all"  # `declared` leaves out columns of the objects that are not declared
    limits: Limits = Limits()
    max_bytes: Annotated[int, Field(gt=0)]
    events: list[EventTemplate] = Field(default_factory=list)

    @property
    def upstream_names(self) -> list[str]:
        return [one.dataset for one in self.upstream]

    @property
    def location(self) -> str:
        """Where the inputs are, in one line."""
        return ", ".join(self.upstream_names) or f"s3://{self.bucket}/{self.prefix}"

    def format_of(self, name: str) -> Format:
        """Returns the format that the end of an object's name has, or else that of the dataset."""
        return next((known for end, known in self.formats.items() if name.endswith(end)), self.format)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_for_upstreams(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not values.get("upstream"):
            return values
        for name in ("bucket", "prefix", "object_pattern", "provider", "formats", "events", "timezone"):
            if values.get(name):
                raise ValueError(f"{name} is about objects; an input with upstream has none")
        return {**NO_OBJECTS, **values}

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, name: str | None) -> str | None:
        try:
            if name is not None:
                ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError("is not a time zone of the IANA database, such as UTC or America/Chicago") from None
        return name

    @field_validator("object_pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _check_prefix(self) -> Self:
        if self.upstream:
            return self
        if not self.bucket:
            raise ValueError("bucket must name the bucket of the objects")
        if not self.prefix and self.provider is None:
            raise ValueError("prefix must name a folder, such as usgs/streamflow/; only a provider's may be empty")
        return self

    @model_validator(mode="after")
    def _check_events(self) -> Self:
        sources = [event.source for event in self.events]
        if len(set(sources)) != len(sources):
            raise ValueError("events has the same source twice")
        for event in self.events:
            if not event.object_key.startswith(self.prefix):
                raise ValueError(f"events: object_key {event.object_key!r} must begin with the prefix {self.prefix!r}")
        return self
