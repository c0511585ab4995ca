"""Masking policies: one reviewed YAML file each in resources/policies/, without which nothing is published."""

import hashlib
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

import rfc8785
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from kfm_pipelines.care.rules import ClassRules, Group, MaskRaster, Sensitivity, resolutions_of
from kfm_pipelines.declarations import ColumnName, DeclarationModel, KeyPart
from kfm_pipelines.declarations.dataset import Dataset, read_yaml, validate_model
from kfm_pipelines.errors import DeclarationInvalid, PolicyRefused

_CARE = ("collective-benefit", "authority-to-control", "responsibility", "ethics")
_TRADITIONAL_KNOWLEDGE = (
    "attribution", "clan", "family", "multiple-communities", "community-voice", "creative", "verified",
    "non-verified", "seasonal", "women-general", "men-general", "men-restricted", "women-restricted",
    "culturally-sensitive", "secret-sacred", "open-to-commercialization", "non-commercial", "community-use-only",
    "outreach", "open-to-collaboration",
)  # fmt: skip
_BIOCULTURAL = (
    "provenance", "multiple-communities", "clan", "consent-verified", "consent-non-verified", "research-use",
    "open-to-collaboration", "open-to-commercialization", "outreach", "non-commercial",
)  # fmt: skip

LABELS = frozenset(
    f"{family}:{name}"
    for family, names in (("care", _CARE), ("tk", _TRADITIONAL_KNOWLEDGE), ("bc", _BIOCULTURAL))
    for name in names
)


def _check_label(label: str) -> str:
    if label not in LABELS:
        raise ValueError("is not a known label; labels look like care:ethics, tk:attribution or bc:provenance")
    return label


Label = Annotated[str, AfterValidator(_check_label)]

# Columns of every masked table, see `published_table`.
RESERVED_COLUMNS = ("record", "cell", "uncertainty_m", "records")
Sentence = Annotated[str, StringConstraints(min_length=3, strip_whitespace=True)]


class Columns(DeclarationModel):
    """Where a policy masks, every column that does not hold a place must be in one of the two lists. An open policy may
    withhold columns as well: no dataset under it may declare them, so they are never read."""

    keep: list[ColumnName] = Field(default_factory=list)
    withhold: list[ColumnName] = Field(default_factory=list)


class Policy(DeclarationModel):
    policy: KeyPart
    version: Annotated[int, Field(ge=1)]
    reason: Sentence
    authority: KeyPart  # a file in resources/authorities
    reviewed_on: date
    review_every_days: Annotated[int, Field(ge=1, le=3650)]
    labels: list[Label] = Field(default_factory=list)

    # One class for all records, or the column that holds it. Under an undecided policy nothing is published.
    sensitivity: Literal["open", "generalised", "restricted", "withheld", "undecided"] | None = None
    class_column: ColumnName | None = None
    classes: dict[Sensitivity, ClassRules] = Field(default_factory=dict)

    minimum_count: Annotated[int, Field(ge=3, le=1000)] = 5
    stable_id: list[ColumnName] = Field(default_factory=list)  # identifies a feature in every release
    key_id: KeyPart | None = None  # the secret of displacement; a new secret needs a new version
    columns: Columns = Columns()
    wording: Sentence | None = None  # replaces withheld values
    footprints: KeyPart | None = None  # a file in the folder KFM_FOOTPRINTS: the places that a raster must not show

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        if (self.sensitivity is None) == (self.class_column is None):
            raise ValueError("needs either sensitivity, for all records, or class_column")
        if not self.masks and self.classes:
            raise ValueError(f"classes: an {self.sensitivity} policy must have none")
        if self.masks and not self.classes:
            raise ValueError("classes: there are no rules for any class, so nothing may be published")
        if self.sensitivity is not None and self.masks and set(self.classes) != {self.sensitivity}:
            raise ValueError(f"classes: must have rules for {self.sensitivity!r} and no other class")
        for sensitivity, rules in self.classes.items():
            rules.refuse_unless_allowed_for(sensitivity)
        return self

    @model_validator(mode="after")
    def _check_required_fields(self) -> Self:
        if not self.masks:
            return self._check_open_columns()
        if self.key_id is None:
            raise ValueError("key_id: a policy that masks needs one")
        if self.raster_rule is not None:
            return self._check_raster_fields()
        if self.footprints is not None:
            raise ValueError("footprints: only a policy with a rule for rasters needs them")
        if not self.stable_id:
            raise ValueError("stable_id: a policy that masks must name the columns that identify a feature")
        if self.wording is None:
            raise ValueError("wording: a policy that masks must name the text that replaces withheld values")
        both = set(self.columns.keep) & set(self.columns.withhold)
        if both:
            raise ValueError(f"columns: {min(both)!r} cannot be both kept and withheld")
        for rule in (rule for rules in self.classes.values() for rule in rules.rules.values()):
            if isinstance(rule, Group) and not set(rule.by) <= set(self.columns.keep):
                raise ValueError("classes: a group may only use columns that are kept")
        return self

    def _check_open_columns(self) -> Self:
        if self.is_open and self.columns.keep:
            raise ValueError("columns: an open policy keeps every column that it does not withhold")
        return self

    def _check_raster_fields(self) -> Self:
        if self.footprints is None:
            raise ValueError("footprints: a policy that masks rasters must name the places they must not show")
        if self.sensitivity is None or any(rules.rules for rules in self.classes.values()):
            raise ValueError("classes: a policy that masks rasters has one sensitivity and a rule for rasters alone")
        return self

    @property
    def raster_rule(self) -> MaskRaster | None:
        return next((rules.raster for rules in self.classes.values() if rules.raster is not None), None)

    @property
    def finest_resolution(self) -> int | None:
        """Of the H3 cells that are published instead of places; None if there are none."""
        rules = [rule for rules in self.classes.values() for rule in rules.rules.values()]
        return max((one for rule in rules for one in resolutions_of(rule)), default=None)

    @property
    def is_open(self) -> bool:
        return self.sensitivity == "open"

    @property
    def is_decided(self) -> bool:
        return self.sensitivity != "undecided"

    @property
    def masks(self) -> bool:
        return self.is_decided and not self.is_open

    @property
    def name(self) -> str:
        return f"{self.policy}@{self.version}"

    @property
    def review_by(self) -> date:
        return self.reviewed_on + timedelta(days=self.review_every_days)

    @cached_property
    def digest(self) -> str:
        without = {"footprints"} if self.footprints is None else None  # as it was before there were any
        return hashlib.sha256(rfc8785.dumps(self.model_dump(mode="json", exclude=without))).hexdigest()


def load_policy(resources: Path, name: str) -> Policy:
    path = resources / "policies" / f"{name}.yaml"
    if not path.is_file():
        raise PolicyRefused(f"there is no masking policy {name!r} in resources/policies, so nothing may be published")
    document = read_yaml(path)
    if not document:
        raise PolicyRefused(f"the masking policy {name!r} is empty, so nothing may be published")
    policy = validate_model(Policy, document, path.name)
    if policy.policy != name:
        raise DeclarationInvalid(f"{path.name}: policy: must be {name!r} like its file, not {policy.policy!r}")
    return policy


def refuse_unless_current(policy: Policy, today: date) -> None:
    if not policy.is_decided:
        raise PolicyRefused(
            f"policy {policy.name} is undecided: nothing is published under it until somebody with authority decides "
            "its sensitivity"
        )
    if today > policy.review_by:
        raise PolicyRefused(
            f"policy {policy.name} was due for review by {policy.review_by}; nothing is published under it"
        )
    if today < policy.reviewed_on:
        raise PolicyRefused(f"policy {policy.name} is reviewed only on {policy.reviewed_on}; nothing is published yet")


def refuse_if_mismatched(policy: Policy, dataset: Dataset) -> None:
    """Raises PolicyRefused unless the policy covers exactly this dataset's columns."""
    for mismatch in mismatches(policy, dataset):
        raise PolicyRefused(f"policy {policy.name} does not suit {dataset.dataset}: {mismatch}")


def refuse_policy_change(policy: Policy, candidate: Dataset) -> None:
    """Raises DeclarationInvalid when a candidate names another policy than the one that masks its dataset."""
    if not policy.is_open and candidate.policy != policy.policy:
        raise DeclarationInvalid(
            f"{candidate.dataset}@{candidate.key.transform_version}: policy must be {policy.policy!r}; what it shows "
            f"is changed by a new version of it, which {policy.authority} decides about, not by a candidate"
        )


def mismatches(policy: Policy, dataset: Dataset) -> list[str]:
    """Returns why the policy does not cover this dataset; nothing suits or contradicts an undecided one."""
    if policy.is_decided and dataset.sovereignty is not None and not policy.labels:
        return ["the data is a nation's, so the policy needs labels"]
    if not policy.masks:
        return [
            f"{column.name!r} is withheld, so it must not be declared"
            for column in dataset.table.columns
            if policy.is_open and {column.name, (column.source or "").lower()} & set(policy.columns.withhold)
        ]
    if dataset.key.split_by is not None:
        return ["key.split_by would put the places of rows into the names of keys, which nothing masks"]
    if (policy.raster_rule is not None) != (dataset.raster is not None):
        masked, made = ("rasters", dataset.processor) if policy.raster_rule else ("places in a table", "raster")
        return [f"it masks {masked}, and the dataset has processor: {made}"]
    if dataset.raster is not None:
        return []
    table = dataset.table
    names = [column.name for column in table.columns]
    listed = [*policy.columns.keep, *policy.columns.withhold]
    places = table.place_columns
    misfits = [
        f"{name!r} is not one of the columns"
        for name in [*listed, *policy.stable_id, *([policy.class_column] if policy.class_column else [])]
        if name not in names
    ]
    misfits += [
        f"{name!r} identifies a feature, so it cannot be kept"
        for name in policy.stable_id
        if name in policy.columns.keep
    ]
    misfits += [f"{name!r} is a reserved name of the published table" for name in names if name in RESERVED_COLUMNS]
    if policy.class_column in listed:
        misfits.append(f"{policy.class_column!r} is the class, which is always kept; remove it from columns")
    misfits += [f"{name!r} holds a place, so it can be neither kept nor withheld" for name in listed if name in places]
    misfits += [
        f"it does not say whether {name!r} is kept or withheld"
        for name in names
        if name not in listed and name not in places and name != policy.class_column
    ]
    if dataset.extent is None:
        misfits.append("the dataset has no extent to hold coordinates against")
    if table.longitude_column is None and table.geometry_column is None:
        misfits.append("the dataset declares no column with a place to mask")
    return misfits
