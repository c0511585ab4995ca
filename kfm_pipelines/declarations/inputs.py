"""The input of a dataset: where its objects are, how they are written, and which object a producer's event means."""

import re
from string import Formatter
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints, field_validator, model_validator

from kfm_pipelines.declarations.words import EVENT_SOURCE, DeclarationModel
from kfm_pipelines.errors import InputUnreadable

Format = Literal["parquet", "csv", "ndjson", "usgs-iv"]
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
    unpacked_bytes: Annotated[int, Field(gt=0, lt=2**31)] = 2**30  # a column of text in Arrow has less than 2 GiB

    def refuse(self, name: str, **found: int) -> None:
        """Raises InputUnreadable if one of these counts is above its limit."""
        for what, count in found.items():
            if count > (allowed := getattr(self, what)):
                words = "unpacks to" if what == "unpacked_bytes" else "has"
                unit = what.removeprefix("unpacked_")
                raise InputUnreadable(f"{name} {words} {count} {unit}; input.limits.{what} allows {allowed}")


class Input(DeclarationModel):
    bucket: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    prefix: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_.-]+/)+$")]
    object_pattern: str
    format: Format
    formats: dict[str, Format] = Field(default_factory=dict)  # of objects whose names end otherwise, such as .json
    csv: Dialect = Dialect()
    timezone: str | None = None  # of times in text without an offset
    columns: Literal["all", "declared"] = "all"  # `declared` leaves out columns of the objects that are not declared
    limits: Limits = Limits()
    max_bytes: Annotated[int, Field(gt=0)]
    events: list[EventTemplate] = Field(default_factory=list)

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
    def _check_events(self) -> Self:
        sources = [event.source for event in self.events]
        if len(set(sources)) != len(sources):
            raise ValueError("events has the same source twice")
        for event in self.events:
            if not event.object_key.startswith(self.prefix):
                raise ValueError(f"events: object_key {event.object_key!r} must begin with the prefix {self.prefix!r}")
        return self
