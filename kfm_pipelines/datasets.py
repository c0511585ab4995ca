"""Dataset declarations: one YAML file each in resources/datasets/, checked in full before anything uses them.

Belongs here: what a declaration may say and whether a set of them agrees. Does not: anything that acts on one.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
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


class Input(_Declared):
    """Where objects of this dataset may come from, and how a path names its window."""

    bucket: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    prefix: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_.-]+/)+$")]
    object_pattern: str
    format: Literal["parquet"]
    max_bytes: Annotated[int, Field(gt=0)]

    @field_validator("object_pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return pattern


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
