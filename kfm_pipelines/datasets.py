"""Dataset declarations: one YAML file each in resources/datasets/, checked in full before anything uses them.

Belongs here: what a declaration may say and whether a set of them agrees. Does not: anything that acts on one.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, Self

import rfc8785
import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from kfm_pipelines.errors import DatasetUnknown, DeclarationInvalid

KeyPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
ColumnName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
ColumnType = Literal["string", "int64", "float64", "bool", "timestamp", "date"]
Words = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
# What Dagster accepts: anything else would only come out when it loads the definitions, and take all datasets down.
Owner = Annotated[str, StringConstraints(pattern=r"^(team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,63}$")]
WindowLength = Literal["hour", "day", "month"]

_NAME = r"[a-z0-9]+([_-][a-z0-9]+)*"

_PATTERN_GROUPS: Mapping[WindowLength, frozenset[str]] = {
    "hour": frozenset({"year", "month", "day", "hour"}),
    "day": frozenset({"year", "month", "day"}),
    "month": frozenset({"year", "month"}),
}


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Licence(_Declared):
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.+-]+$")]
    url: Words


class Provider(_Declared):
    name: str
    roles: list[Literal["licensor", "producer", "processor", "host"]]
    url: str | None = None


class KeyTemplate(_Declared):
    """The parts of the canonical key that are the same for every window."""

    source: KeyPart
    aoi: KeyPart
    h3_res: Annotated[str, StringConstraints(pattern=r"^(none|[0-9]|1[0-5])$")]
    window: WindowLength
    transform_version: KeyPart


class EventTemplate(_Declared):
    """Which object is meant by an event of this source that names none, in terms of what its payload says.

    `{name}` is a field of the payload, `{event_time:%Y/%m/%d}` the time of the event. Nothing else of Python's format
    language passes, so a declaration can reach no attribute and no index of what it is filled with.
    """

    source: Annotated[str, StringConstraints(pattern=rf"^kfm\.{_NAME}\.{_NAME}$")]
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


class Input(_Declared):
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


class Column(_Declared):
    name: ColumnName
    type: ColumnType
    nullable: bool
    unit: str | None = None
    description: str


class Table(_Declared):
    """The published table: columns in order, and which of them say what a row is, when and where."""

    primary_key: Annotated[list[ColumnName], Field(min_length=1)]
    time_column: ColumnName
    longitude_column: ColumnName
    latitude_column: ColumnName
    columns: Annotated[list[Column], Field(min_length=1)]

    @model_validator(mode="after")
    def _named_columns_exist(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("columns has the same name twice")
        for name in [*self.primary_key, self.time_column, self.longitude_column, self.latitude_column]:
            if name not in names:
                raise ValueError(f"{name!r} is not one of the columns {', '.join(names)}")
        self._refuse_type(self.time_column, ("timestamp",))
        self._refuse_type(self.longitude_column, ("float64",))
        self._refuse_type(self.latitude_column, ("float64",))
        return self

    def _refuse_type(self, name: str, expected: tuple[ColumnType, ...]) -> None:
        """What says when or where has to be able to; the gates compare it."""
        found = next(column.type for column in self.columns if column.name == name)
        if found not in expected:
            raise ValueError(f"{name!r} must be of type {' or '.join(expected)}, not {found}")


class PrefixLimit(_Declared):
    """At most so many runs at once over keys that begin like this."""

    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_:-]*$")]
    runs: Annotated[int, Field(ge=1, le=8)]  # dagster.yaml has a limit for each of these


class Concurrency(_Declared):
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


class Dataset(_Declared):
    """One declared dataset."""

    dataset: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(-[a-z0-9_]+)*/[a-z0-9_]+(-[a-z0-9_]+)*$")]
    # What messages are routed by besides the dataset; several datasets may be one product.
    product: KeyPart = Field(default_factory=lambda given: str(given["dataset"]).partition("/")[2])
    title: Words
    description: Words
    owners: Annotated[list[Owner], Field(min_length=1)]
    tags: dict[Tag, Tag]
    licence: Licence
    providers: list[Provider]
    key: KeyTemplate
    input: Input
    processor: Literal["table"]
    policy: KeyPart
    table: Table
    concurrency: Concurrency = Concurrency()

    @model_validator(mode="after")
    def _limits_name_own_keys(self) -> Self:
        start = f"{self.key.source}:{self.key.aoi}:"
        for limit in self.concurrency.limits:
            if not (limit.prefix.startswith(start) or start.startswith(limit.prefix)):
                raise ValueError(f"concurrency.limits: no key of this dataset begins with {limit.prefix!r}")
        return self

    @model_validator(mode="after")
    def _pattern_names_the_window(self) -> Self:
        missing = _PATTERN_GROUPS[self.key.window] - set(re.compile(self.input.object_pattern).groupindex)
        if missing:
            raise ValueError(
                f"input.object_pattern needs a group (?P<{min(missing)}>…) to name a window of one {self.key.window}"
            )
        return self

    @property
    def pipeline(self) -> str:
        """The dataset's name as one path segment: `usgs/streamflow` → `usgs-streamflow`."""
        return self.dataset.replace("/", "-")

    @property
    def event_source(self) -> str:
        """What its FIFO events name as their source: `usgs/streamflow` → `kfm.usgs.streamflow`."""
        return f"kfm.{self.dataset.replace('/', '.')}"

    @property
    def digest(self) -> str:
        """Changes when, and only when, something changes that shapes the published bytes."""
        shapes = {"dataset", "title", "key", "processor", "policy", "table", "licence"}
        shaping = self.model_dump(mode="json", include=shapes)
        return hashlib.sha256(rfc8785.dumps(shaping)).hexdigest()


class Datasets(Mapping[str, Dataset]):
    """All declared datasets by name; looking up an undeclared one is a named refusal."""

    def __init__(self, declared: Mapping[str, Dataset]) -> None:
        self._declared = dict(sorted(declared.items()))

    def __getitem__(self, name: str) -> Dataset:
        try:
            return self._declared[name]
        except KeyError:
            known = ", ".join(self._declared) or "none"
            raise DatasetUnknown(f"dataset {name[:200]!r} is not declared; declared: {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


def load_dataset(path: Path) -> Dataset:
    """Read one declaration; a mistake in it is one sentence naming file, field and what was expected."""
    document = read_yaml(path)
    try:
        return Dataset.model_validate(document)
    except ValidationError as error:
        raise DeclarationInvalid(f"{path.name}: {describe(error)}") from None


def load_datasets(resources: Path) -> Datasets:
    """Read every declaration in resources/datasets and check that no two of them claim the same thing."""
    datasets: dict[str, Dataset] = {}
    for path in sorted((resources / "datasets").glob("*.yaml")):
        new = load_dataset(path)
        for other in datasets.values():
            _refuse_overlap(path, new, other)
        datasets[new.dataset] = new
    return Datasets(datasets)


def read_yaml(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeclarationInvalid(f"{path.name}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        first_line = " ".join(str(error).split())
        raise DeclarationInvalid(f"{path.name}: is not YAML: {first_line}") from None


def describe(error: ValidationError) -> str:
    """Pydantic's first complaint as one sentence."""
    # A default made from a field that is wrong itself is no second mistake.
    first, *others = (one for one in error.errors() if one["type"] != "default_factory_not_called")
    field = ".".join(str(part) for part in first["loc"]) or "declaration"
    more = f" (and {len(others)} more)" if others else ""
    given = first["input"]
    shown = (
        f", not {given!r}" if isinstance(given, str | int | float | bool) and first["type"] != "extra_forbidden" else ""
    )
    return f"{field}: {first['msg'].removeprefix('Value error, ')}{shown}{more}"


def _refuse_overlap(path: Path, new: Dataset, other: Dataset) -> None:
    if new.pipeline.replace("-", "_") == other.pipeline.replace("-", "_"):
        raise DeclarationInvalid(
            f"{path.name}: dataset {new.dataset!r} is declared twice, or too like {other.dataset!r}"
        )
    if new.key.source == other.key.source and new.key.aoi == other.key.aoi:
        raise DeclarationInvalid(
            f"{path.name}: key.source and key.aoi are those of {other.dataset!r}; their keys would be the same"
        )
    if new.input.bucket == other.input.bucket and (
        new.input.prefix.startswith(other.input.prefix) or other.input.prefix.startswith(new.input.prefix)
    ):
        raise DeclarationInvalid(f"{path.name}: input.prefix overlaps that of {other.dataset!r}")
    both = {event.source for event in new.input.events} & {event.source for event in other.input.events}
    if both:
        raise DeclarationInvalid(f"{path.name}: input.events: {min(both)} is already listened to by {other.dataset!r}")
