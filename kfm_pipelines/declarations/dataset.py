"""Dataset declarations: one YAML file each in resources/datasets/, loaded and checked against each other."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import rfc8785
import yaml
from pydantic import Field, StringConstraints, ValidationError, model_validator
from pydantic_core import ErrorDetails

from kfm_pipelines.declarations.areas import load_area
from kfm_pipelines.declarations.faults import Fault, refuse
from kfm_pipelines.declarations.identity import Extent, KeyTemplate, Licence, Provider, Sovereignty
from kfm_pipelines.declarations.inputs import RASTER_FORMATS, Input
from kfm_pipelines.declarations.overlaps import overlaps
from kfm_pipelines.declarations.quality import Canary, Quality
from kfm_pipelines.declarations.rasters import Raster, raster_table
from kfm_pipelines.declarations.scenes import Scene, index_raster, scene_table
from kfm_pipelines.declarations.splits import members_of, split_faults
from kfm_pipelines.declarations.tables import Column, IcebergTable, Table, TransformName, iceberg_faults
from kfm_pipelines.declarations.timeliness import Concurrency, DueRule, LateRule, ServiceLevel, Watermark
from kfm_pipelines.declarations.upstreams import derivation_faults, upstream_faults
from kfm_pipelines.declarations.vectors import Vector, feature_faults
from kfm_pipelines.declarations.words import DeclarationModel, KeyPart, NonEmptyText, Owner, Tag, WindowLength
from kfm_pipelines.errors import DatasetUnknown, DeclarationInvalid

Model = TypeVar("Model", bound=DeclarationModel)

# Everything that shapes the published bytes, except the transform.
_DIGEST_FIELDS = {"dataset", "title", "key", "processor", "policy", "sovereignty", "extent", "table", "licence"}
# So do these, where they are declared.
_OPTIONAL_DIGEST_FIELDS = {"vector", "raster", "scene"}
# How objects are read.
_READING_FIELDS = {"upstream", "format", "formats", "csv", "timezone", "columns"}

# The C loader, where PyYAML has it, is seven times as fast, and every process reads the declarations.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_PATTERN_GROUPS: Mapping[WindowLength, frozenset[str]] = {
    "hour": frozenset({"year", "month", "day", "hour"}),
    "day": frozenset({"year", "month", "day"}),
    "week": frozenset({"year", "month", "day"}),
    "month": frozenset({"year", "month"}),
    "year": frozenset({"year"}),
}
_ISO_WEEK = frozenset({"year", "week"})


Processor = Literal["table", "vector", "raster", "scene"]
_DERIVED_TABLES: Mapping[Any, Any] = {"raster": (Raster, raster_table), "scene": (Scene, scene_table)}
_ANY_TABLE = Table(
    primary_key=["id"], columns=[Column(name="id", type="string", nullable=False, description="Stands for a table")]
)


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
    processor: Processor
    vector: Vector | None = None
    raster: Raster | None = None
    scene: Scene | None = None
    transform: TransformName | None = None  # applied to the input table; may add columns the objects do not have
    policy: KeyPart
    review: Literal["none", "required"] = "none"  # whether an authority must approve each release
    sovereignty: Sovereignty | None = None
    extent: Extent | None = None
    outside_aoi: Literal["refuse", "clip", "warn"] | None = None  # what becomes of what lies outside; None refuses it
    table: Table  # of rasters and scenes, it follows from what is declared of them
    concurrency: Concurrency = Concurrency()
    quality: Quality = Quality()
    canary: Canary | None = None
    watermark: Watermark = Watermark()
    due: DueRule = DueRule()
    late: LateRule = "patch"  # what happens to an event made after its window closed
    slo: ServiceLevel = ServiceLevel()
    tables: IcebergTable | None = None  # a table of all keys, besides a file of each; `iceberg`, or with options

    @model_validator(mode="before")
    @classmethod
    def _derive_table(cls, values: Any) -> Any:
        """Adds the table of a raster or scene, which follows from its section."""
        derivation = _DERIVED_TABLES.get(values.get("processor")) if isinstance(values, dict) else None
        if derivation is None or "table" in values:
            return values
        model, derive = derivation
        try:
            declared = model.model_validate(values.get(values["processor"]))
            return {**values, "table": derive(declared, str(values["key"]["h3_res"]))}
        except (ValidationError, KeyError, TypeError):
            return {**values, "table": _ANY_TABLE}  # what is wrong with the section or the key is reported

    @model_validator(mode="after")
    def _check_sections(self) -> Self:
        refuse(fault for check in self.CHECKS for fault in check(self))
        return self

    def _processor_faults(self) -> Iterator[Fault]:
        for name in ("vector", "raster", "scene"):
            if (getattr(self, name) is not None) and self.processor != name:
                yield Fault(f"{name} needs processor: {name}", (name,))
        if self.processor in _DERIVED_TABLES:
            if (section := getattr(self, self.processor)) is None:
                yield Fault(f"processor: {self.processor} needs a section {self.processor}", ("processor",))
            elif self.table != _DERIVED_TABLES[self.processor][1](section, self.key.h3_res):
                yield Fault(f"table follows from the section {self.processor}; leave it out", ("table",))

    def _format_faults(self) -> Iterator[Fault]:
        formats, path = {self.input.format, *self.input.formats.values()}, ("input", "format")
        if (self.processor == "scene") != (self.input.format == "folder"):
            yield Fault("processor: scene and input.format: folder go together", path)
        for one in sorted(formats):
            if (one in RASTER_FORMATS) != (self.processor == "raster") and self.processor != "scene":
                yield Fault(f"input.format: {one} does not go with processor: {self.processor}", path)
        yield from feature_faults(self.processor, formats, self.table)

    def _limit_faults(self) -> Iterator[Fault]:
        start = f"{self.key.source}:{self.key.aoi}{'-' if self.key.has_members else ':'}"
        for place, limit in enumerate(self.concurrency.limits):
            if not (limit.prefix.startswith(start) or start.startswith(limit.prefix)):
                sentence = f"concurrency.limits: no key of this dataset begins with {limit.prefix!r}"
                yield Fault(sentence, ("concurrency", "limits", place, "prefix"))

    def _split_faults(self) -> Iterator[Fault]:
        yield from split_faults(self.key.split_by, self.processor, self.table)

    def _quality_faults(self) -> Iterator[Fault]:
        quality, types = self.quality, {column.name: column.type for column in self.table.columns}
        for section in ("ranges", "statistics", "nulls"):
            for place, limited in enumerate(getattr(quality, section)):
                path = ("quality", section, place, "column")
                if limited.column not in types:
                    yield Fault(f"quality: {self.table.unknown(limited.column)}", path)
                    continue
                unbounded = section == "nulls" or getattr(limited, "measure", None) == "distinct"
                if not unbounded and types[limited.column] not in ("int64", "float64"):
                    sentence = f"quality: {limited.column!r} must be of type int64 or float64 to have bounds"
                    yield Fault(sentence, path)

    def _topology_faults(self) -> Iterator[Fault]:
        if self.quality.topology is not None and self.processor != "vector":
            yield Fault("quality.topology is about polygons, so it needs processor: vector", ("quality", "topology"))

    def _iceberg_faults(self) -> Iterator[Fault]:
        yield from iceberg_faults(self.tables, self.table)

    def _candidate_faults(self) -> Iterator[Fault]:
        if self.canary and self.canary.transform_version == self.key.transform_version:
            sentence = "canary.transform_version must differ from key.transform_version"
            yield Fault(sentence, ("canary", "transform_version"))

    def _pattern_faults(self) -> Iterator[Fault]:
        if self.input.upstream:
            return
        groups = set(re.compile(self.input.object_pattern).groupindex)
        missing = _PATTERN_GROUPS[self.key.window] - groups
        if missing and not (self.key.window == "week" and groups >= _ISO_WEEK):
            sentence = (
                f"input.object_pattern needs a group (?P<{min(missing)}>…) to name a window of one {self.key.window}"
            )
            yield Fault(sentence, ("input", "object_pattern"))
        for path, name in (
            (("key", "fold_by"), self.key.fold_by),
            (("watermark", "partition"), self.watermark.partition),
        ):
            if name is not None and name not in groups:
                yield Fault(f"{'.'.join(path)}: input.object_pattern has no group (?P<{name}>…)", path)

    # Each needs only the sections that it reads, so that they can be run on what is valid of a declaration.
    CHECKS: ClassVar[tuple[Callable[["Dataset"], Iterator[Fault]], ...]] = (
        _processor_faults, _format_faults, _limit_faults, _split_faults, _quality_faults, _topology_faults,
        _candidate_faults, _pattern_faults, derivation_faults, _iceberg_faults,
    )  # fmt: skip

    @property
    def pipeline(self) -> str:
        return pipeline_of(self.dataset)

    @property
    def uses_area(self) -> bool:
        """Whether the shape of the area affects what is published."""
        return self.outside_aoi == "clip" or self.processor in ("raster", "scene")

    @property
    def published_raster(self) -> Raster | None:
        """The declaration of the raster beside the table; that of an index follows from its scene."""
        return index_raster(self.scene) if self.scene else self.raster

    @property
    def has_judged_places(self) -> bool:
        """Whether rows have places that must lie in the area. Cells of rasters may reach beyond it at its edge."""
        return self.processor in ("table", "vector") and bool(self.table.position_columns)

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
        for name in ("fold_by", "split_by"):  # likewise below: the digest stays what it was before there was the field
            if shaping["key"][name] is None:
                del shaping["key"][name]
        if self.transform is not None:  # otherwise the digest is the same as before transforms existed
            shaping["transform"] = self.transform
        for name in _OPTIONAL_DIGEST_FIELDS & self.model_fields_set:
            shaping |= self.model_dump(mode="json", include={name}, exclude_none=True)
        if self.outside_aoi == "clip":  # otherwise the same bytes are published, or none
            shaping["outside_aoi"] = self.outside_aoi
        reading = self.input.model_dump(mode="json", include=_READING_FIELDS, exclude_defaults=True)
        if reading != {"format": "parquet"}:  # likewise, as before there were other formats
            shaping["input"] = reading
        return shaping


class Datasets(Mapping[str, Dataset]):
    """All declared datasets by name. Looking up an undeclared one raises DatasetUnknown."""

    def __init__(self, declared: Mapping[str, Dataset], resources: Path | None = None) -> None:
        self._declared = dict(sorted(declared.items()))
        self._resources = resources
        self._members: dict[str, tuple[str, ...]] = {}

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

    def members_of(self, name: str) -> tuple[str, ...]:
        """Returns the members of a dataset that splits its objects; () of others. Raises DeclarationInvalid when cells
        are declared for an area that is missing or too large."""
        if name not in self._members:
            key = self[name].key
            load = partial(load_area, self._resources or Path(), key.aoi)
            self._members[name] = members_of(key.split_by, load) if key.split_by else ()
        return self._members[name]


def load_dataset(path: Path) -> Dataset:
    return load_model(Dataset, path)


def load_datasets(resources: Path) -> Datasets:
    """Reads every declaration in resources/datasets and refuses two that overlap."""
    datasets: dict[str, Dataset] = {}
    for path in sorted((resources / "datasets").glob("*.yaml")):
        new = load_dataset(path)
        for fault in (fault for other in datasets.values() for fault in overlaps(new, other)):
            raise DeclarationInvalid(f"{path.name}: {fault.sentence}")
        datasets[new.dataset] = new
    for one in datasets.values():
        for fault in upstream_faults(one, datasets):
            raise DeclarationInvalid(f"{one.dataset}: {fault.sentence}")
    return Datasets(datasets, resources)


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
    first, *others = mistakes_of(error)
    field = ".".join(str(part) for part in first["loc"]) or "declaration"
    more = f" (and {len(others)} more)" if others else ""
    return f"{field}: {format_mistake(first)}{more}"


def mistakes_of(error: ValidationError) -> list[ErrorDetails]:
    # A default computed from an invalid field is not a second mistake.
    return [one for one in error.errors() if one["type"] != "default_factory_not_called"]


def format_mistake(mistake: ErrorDetails) -> str:
    """Formats what is wrong with a field, and quotes its value."""
    given = mistake["input"]
    quotable = isinstance(given, str | int | float | bool) and mistake["type"] != "extra_forbidden"
    return mistake["msg"].removeprefix("Value error, ") + (f", not {given!r}" if quotable else "")
