"""Reads suites in the format of GX, and checks them against their table before anything runs."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations import ColumnName, DeclarationModel, KeyPart, NonEmptyText, Table
from kfm_pipelines.declarations.dataset import Dataset, validate_model
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.gates.expectations.vocabulary import validate_expectation
from kfm_pipelines.gates.verdict import Severity

COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list")
SEVERITIES: Mapping[str, Severity] = {"critical": Severity.ERROR, "warning": Severity.WARN, "info": Severity.INFO}


class ExpectationMeta(DeclarationModel):
    rule: KeyPart | None = None
    why: NonEmptyText | None = None


class Expectation(DeclarationModel):
    type: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    severity: Literal["critical", "warning", "info"] = "critical"  # words and default of GX
    meta: ExpectationMeta = ExpectationMeta()

    @property
    def name(self) -> str:
        return self.meta.rule or self.type

    @property
    def rule(self) -> str:
        return f"gx:{self.name}"

    @property
    def finding_severity(self) -> Severity:
        return SEVERITIES[self.severity]

    @property
    def columns(self) -> list[str]:
        """Returns the columns it names; none when it is about the table."""
        named: list[str] = []
        for argument in COLUMN_ARGUMENTS:
            value = self.kwargs.get(argument, [])
            named += [value] if isinstance(value, str) else value
        return named

    def with_columns(self, names: Mapping[str, str]) -> Self:
        """Returns the expectation about other columns."""
        kwargs = dict(self.kwargs)
        for argument, value in self.kwargs.items():
            if argument in COLUMN_ARGUMENTS:
                kwargs[argument] = (
                    names.get(value, value) if isinstance(value, str) else [names.get(n, n) for n in value]
                )
        return self.model_copy(update={"kwargs": kwargs})

    def __str__(self) -> str:
        """`values_to_be_between min_value=0`, without the columns."""
        arguments = [f"{name}={value}" for name, value in self.kwargs.items() if name not in COLUMN_ARGUMENTS]
        return " ".join([self.type.removeprefix("expect_").removeprefix("column_"), *arguments])


class SuiteMeta(DeclarationModel):
    """Columns computed for the suite: ratios of two columns, because GX cannot compare columns with a tolerance."""

    ratios: dict[ColumnName, Annotated[list[ColumnName], Field(min_length=2, max_length=2)]] = Field(
        default_factory=dict
    )


class Suite(DeclarationModel):
    name: KeyPart
    meta: SuiteMeta = SuiteMeta()
    expectations: Annotated[list[Expectation], Field(min_length=1)]

    @model_validator(mode="after")
    def _require_unique_rules(self) -> Self:
        names = [expectation.name for expectation in self.expectations]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is there twice; give each expectation a meta.rule of its own")
        return self

    def source_columns(self, expectation: Expectation) -> set[str]:
        """Returns the columns of the table that it uses, directly or through a ratio."""
        ratios = self.meta.ratios
        return {origin for name in expectation.columns for origin in ratios.get(name, [name])}


def load_suite(resources: Path, name: str, table: Table) -> Suite:
    """Reads a suite for a table as published. Raises DeclarationInvalid, naming file and expectation."""
    path = _path(resources, name)
    suite = _read(path)
    if suite.name != name:
        raise DeclarationInvalid(f"{path.name}: name: must be {name!r} like its file, not {suite.name!r}")
    known = {column.name for column in table.columns}
    for made, parts in suite.meta.ratios.items():
        for sentence in _validate_ratio(made, parts, table):
            raise DeclarationInvalid(f"{path.name}: meta.ratios.{made}: {sentence}")
    for expectation in suite.expectations:
        for sentence in validate_expectation(expectation.type, expectation.kwargs):
            raise DeclarationInvalid(f"{path.name}: {expectation.name}: {sentence}")
        for column in expectation.columns:
            if column not in known and column not in suite.meta.ratios:
                listed = ", ".join(one.name for one in table.columns)
                raise DeclarationInvalid(
                    f"{path.name}: {expectation.name}: {column!r} is not one of the columns {listed}"
                )
    return suite


def suites_of(resources: Path, dataset: Dataset, table: Table) -> dict[str, Suite]:
    named = (dataset.quality.suite, dataset.quality.deep_suite)
    return {name: load_suite(resources, name, table) for name in named if name is not None}


def suite_digest(resources: Path, name: str | None) -> str | None:
    return None if name is None else hashlib.sha256(_read_bytes(_path(resources, name))).hexdigest()


def _path(resources: Path, name: str) -> Path:
    return resources / "expectations" / f"{name}.json"


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DeclarationInvalid(f"{path.name}: cannot be read: {error.strerror}") from None


def _read(path: Path) -> Suite:
    data = _read_bytes(path)
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DeclarationInvalid(f"{path.name}: is not JSON: {' '.join(str(error).split())}") from None
    return validate_model(Suite, document, path.name)


def _validate_ratio(made: str, parts: list[str], table: Table) -> list[str]:
    types = {column.name: column.type for column in table.columns}
    if made in types:
        return ["is a column of the table; give the ratio another name"]
    return [
        f"{part!r} is not one of the columns with numbers"
        for part in parts
        if types.get(part) not in ("int64", "float64")
    ]
