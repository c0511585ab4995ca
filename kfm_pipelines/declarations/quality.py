"""Thresholds that the data of a dataset, and of a candidate for its next version, must meet."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations.words import ColumnName, DeclarationModel, KeyPart

TABLE_GATES = ("schema", "qa")  # check the table before it is staged
RELEASE_GATES = ("integrity", "care", "governance")  # check every staged byte
GATES = TABLE_GATES + RELEASE_GATES

QualitySeverity = Literal["info", "warn", "error"]  # only an error stops a publication
Percent = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Range(DeclarationModel):
    """Every value that is not null lies between these, both included."""

    column: ColumnName
    min: float | None = None
    max: float | None = None
    severity: QualitySeverity = "error"

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min must not be more than max")
        return self


class Statistic(Range):
    """A statistic of the column lies between these."""

    measure: Literal["mean", "median", "stddev", "sum", "distinct"]


class NullLimits(DeclarationModel):
    """The share of a column that may be null."""

    column: ColumnName
    warn_above: Fraction | None = None
    error_above: Fraction | None = None

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.warn_above is None and self.error_above is None:
            raise ValueError("needs warn_above, error_above or both")
        return self


class RowCountTolerance(DeclarationModel):
    """How far the number of rows may differ, up or down, in percent of the number it is compared with."""

    warn_percent: Percent | None = None
    error_percent: Percent | None = None


class NeighbourTolerance(RowCountTolerance):
    """Compares with the median of the published windows around it, `windows` on either side."""

    windows: Annotated[int, Field(ge=1, le=50)] = 3


class RowCountLimits(DeclarationModel):
    previous: RowCountTolerance = RowCountTolerance()  # compared with the current revision
    neighbours: NeighbourTolerance | None = None


class TopologyRules(DeclarationModel):
    """How the polygons of a layer lie to each other, and how bad it is if they do not."""

    overlaps: QualitySeverity | None = None  # no two cover the same place
    gaps: QualitySeverity | None = None  # they leave nothing open between them
    tolerance_m2: Annotated[float, Field(ge=0)] = 10.0  # smaller overlaps and gaps do not count

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if self.overlaps is None and self.gaps is None:
            raise ValueError("needs overlaps, gaps or both")
        return self


class Quality(DeclarationModel):
    """Thresholds of the QA gate, and the Great Expectations suites in resources/expectations."""

    suite: KeyPart | None = None  # runs before every publication
    deep_suite: KeyPart | None = None  # runs in the scheduled scan of published data
    stable: bool = False  # the same objects under the same policy always produce the same bytes
    ranges: list[Range] = Field(default_factory=list)
    statistics: list[Statistic] = Field(default_factory=list)
    nulls: list[NullLimits] = Field(default_factory=list)
    rows: RowCountLimits = RowCountLimits()
    topology: TopologyRules | None = None

    @property
    def columns(self) -> list[str]:
        bounded: list[Range] = [*self.ranges, *self.statistics]
        return [*(one.column for one in bounded), *(one.column for one in self.nulls)]


class Tolerance(DeclarationModel):
    """How far a candidate's output may differ from the published one."""

    rows_percent: Percent = 0.0
    changed_percent: Percent = 0.0  # rows added, removed, or with another value in a column both have
    statistics_percent: Percent = 0.0
    columns: Literal["identical", "additive", "any"] = "identical"


class Canary(DeclarationModel):
    """A trial of the declaration resources/candidates/{pipeline}@{transform_version}.yaml on a fraction of the keys."""

    transform_version: KeyPart
    fraction: Annotated[float, Field(gt=0, le=1)]
    keys: Annotated[int, Field(ge=1)] = 20  # keys that must pass the comparison before promotion
    tolerance: Tolerance = Tolerance()
