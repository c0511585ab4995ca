"""Dataset declarations: one YAML file each in resources/datasets/, loaded and checked against each other."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import rfc8785
import yaml
from pydantic import Field, StringConstraints, ValidationError, model_validator

from kfm_pipelines.declarations.identity import Extent, KeyTemplate, Licence, Provider, Sovereignty
from kfm_pipelines.declarations.inputs import Input
from kfm_pipelines.declarations.quality import Canary, Quality
from kfm_pipelines.declarations.tables import Table, TransformName
from kfm_pipelines.declarations.timeliness import Concurrency, DueRule, LateRule, ServiceLevel, Watermark
from kfm_pipelines.declarations.words import DeclarationModel, KeyPart, NonEmptyText, Owner, Tag, WindowLength
from kfm_pipelines.errors import DatasetUnknown, DeclarationInvalid

Model = TypeVar("Model", bound=DeclarationModel)

# Everything that shapes the published bytes, except the transform.
_DIGEST_FIELDS = {"dataset", "title", "key", "processor", "policy", "sovereignty", "extent", "table", "licence"}
# How objects are read.
_READING_FIELDS = {"format", "formats", "csv", "timezone", "columns"}

# The C loader, where PyYAML has it, is seven times as fast, and every process reads the declarations.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_PATTERN_GROUPS: Mapping[WindowLength, frozenset[str]] = {
    "hour": frozenset({"year", "month", "day", "hour"}),
    "day": frozenset({"year", "month", "day"}),
    "month": frozenset({"year", "month"}),
}


def pipeline_of(dataset: str) -> str:
    """Returns a dataset's name as one path segment: `usgs/streamflow` → `usgs-streamflow`."""
    return dataset.replace("/", "-")


class Dataset(DeclarationModel):
    dataset: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(-[a-z0-9_]+)*/[a-z0-9_]+(-[a-z0-9_]+)*$")]
    # Messages are routed by product as well; several datasets may share one.
    product: KeyPart = Field(default_factory=lambda given: str(given["dataset"]).partition("/")[2])
    title: NonEmptyText
    description: NonEmptyText
    owners: Annotated[list[Owner], Field(min_length=1)]
    tags: dict[Tag, Tag]
    licence: Licence
    providers: list[Provider]
    key: KeyTemplate
    input: Input
    processor: Literal["table"]
    transform: TransformName | None = None  # applied to the input table; may add columns the objects do not have
    policy: KeyPart
    review: Literal["none", "required"] = "none"  # whether an authority must approve each release
    sovereignty: Sovereignty | None = None
    extent: Extent | None = None
    table: Table
    concurrency: Concurrency = Concurrency()
    quality: Quality = Quality()
    canary: Canary | None = None
    watermark: Watermark = Watermark()
    due: DueRule = DueRule()
    late: LateRule = "patch"  # what happens to an event made after its window closed
    slo: ServiceLevel = ServiceLevel()

    @model_validator(mode="after")
    def _check_limit_prefixes(self) -> Self:
        start = f"{self.key.source}:{self.key.aoi}:"
        for limit in self.concurrency.limits:
            if not (limit.prefix.startswith(start) or start.startswith(limit.prefix)):
                raise ValueError(f"concurrency.limits: no key of this dataset begins with {limit.prefix!r}")
        return self

    @model_validator(mode="after")
    def _check_quality_columns(self) -> Self:
        for name in self.quality.columns:
            try:
                self.table.column(name)
            except ValueError as error:
                raise ValueError(f"quality: {error}") from None
        for limited in (*self.quality.ranges, *self.quality.statistics):
            counted = getattr(limited, "measure", None) == "distinct"
            if not counted and self.table.column(limited.column).type not in ("int64", "float64"):
                raise ValueError(f"quality: {limited.column!r} must be of type int64 or float64 to have bounds")
        return self

    @model_validator(mode="after")
    def _check_candidate_version(self) -> Self:
        if self.canary and self.canary.transform_version == self.key.transform_version:
            raise ValueError("canary.transform_version must differ from key.transform_version")
        return self

    @model_validator(mode="after")
    def _check_pattern_groups(self) -> Self:
        groups = set(re.compile(self.input.object_pattern).groupindex)
        if missing := _PATTERN_GROUPS[self.key.window] - groups:
            raise ValueError(
                f"input.object_pattern needs a group (?P<{min(missing)}>…) to name a window of one {self.key.window}"
            )
        if self.watermark.partition is not None and self.watermark.partition not in groups:
            raise ValueError(
                f"watermark.partition: input.object_pattern has no group (?P<{self.watermark.partition}>…)"
            )
        return self

    @property
    def pipeline(self) -> str:
        return pipeline_of(self.dataset)

    @property
    def event_source(self) -> str:
        """The source named by its FIFO events: `usgs/streamflow` → `kfm.usgs.streamflow`."""
        return f"kfm.{self.dataset.replace('/', '.')}"

    @property
    def digest(self) -> str:
        """Changes when, and only when, something changes that shapes the published bytes."""
        return hashlib.sha256(rfc8785.dumps(self.digest_document)).hexdigest()

    @property
    def digest_document(self) -> dict[str, Any]:
        """The part of the declaration that shapes the published bytes."""
        shaping = self.model_dump(mode="json", include=_DIGEST_FIELDS) | {"table": self.table.digest_document}
        if self.transform is not None:  # otherwise the digest is the same as before transforms existed
            shaping["transform"] = self.transform
        reading = self.input.model_dump(mode="json", include=_READING_FIELDS, exclude_defaults=True)
        if reading != {"format": "parquet"}:  # likewise, as before there were other formats
            shaping["input"] = reading
        return shaping


class Datasets(Mapping[str, Dataset]):
    """All declared datasets by name. Looking up an undeclared one raises DatasetUnknown."""

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
    return load_model(Dataset, path)


def load_datasets(resources: Path) -> Datasets:
    """Reads every declaration in resources/datasets and refuses two that overlap."""
    datasets: dict[str, Dataset] = {}
    for path in sorted((resources / "datasets").glob("*.yaml")):
        new = load_dataset(path)
        for other in datasets.values():
            _refuse_overlap(path, new, other)
        datasets[new.dataset] = new
    return Datasets(datasets)


def load_model(model: type[Model], path: Path, name: str | None = None) -> Model:
    """Reads one YAML file. Raises DeclarationInvalid naming the file, the field and what was expected."""
    return validate_model(model, read_yaml(path), name or path.name)


def validate_model(model: type[Model], document: object, name: str) -> Model:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise DeclarationInvalid(f"{name}: {format_validation_error(error)}") from None


def read_yaml(path: Path) -> object:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 both are safe loaders
    except OSError as error:
        raise DeclarationInvalid(f"{path.name}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DeclarationInvalid(f"{path.name}: is not YAML: {' '.join(str(error).split())}") from None


def format_validation_error(error: ValidationError) -> str:
    """Formats the first error as one sentence."""
    # A default computed from an invalid field is not a second mistake.
    first, *others = (one for one in error.errors() if one["type"] != "default_factory_not_called")
    field = ".".join(str(part) for part in first["loc"]) or "declaration"
    more = f" (and {len(others)} more)" if others else ""
    given = first["input"]
    quotable = isinstance(given, str | int | float | bool) and first["type"] != "extra_forbidden"
    found = f", not {given!r}" if quotable else ""
    return f"{field}: {first['msg'].removeprefix('Value error, ')}{found}{more}"


def _refuse_overlap(path: Path, new: Dataset, other: Dataset) -> None:
    if new.pipeline.replace("-", "_") == other.pipeline.replace("-", "_"):
        raise DeclarationInvalid(
            f"{path.name}: dataset {new.dataset!r} is declared twice, or its name is too close to {other.dataset!r}"
        )
    if new.key.source == other.key.source and new.key.aoi == other.key.aoi:
        raise DeclarationInvalid(
            f"{path.name}: key.source and key.aoi are the same as in {other.dataset!r}, so their keys would collide"
        )
    if new.input.bucket == other.input.bucket and (
        new.input.prefix.startswith(other.input.prefix) or other.input.prefix.startswith(new.input.prefix)
    ):
        raise DeclarationInvalid(f"{path.name}: input.prefix overlaps that of {other.dataset!r}")
    both = {event.source for event in new.input.events} & {event.source for event in other.input.events}
    if both:
        raise DeclarationInvalid(f"{path.name}: input.events: {min(both)} already belongs to {other.dataset!r}")
