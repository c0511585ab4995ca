"""What is expected of the data besides its schema. A threshold is declared here or it does not exist."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations.words import ColumnName, DeclarationModel, KeyPart

TABLE_GATES = ("schema", "qa")  # judge the table, before it is staged
RELEASE_GATES = ("integrity", "care", "governance")  # judge what is staged: all of it, to the byte
GATES = TABLE_GATES + RELEASE_GATES

QualitySeverity = Literal["info", "warn", "error"]  # only an error keeps a key from being published
Percent = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Range(DeclarationModel):
    """Every value that is there lies between these, both included."""

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
    """A number made of the whole column lies between these."""

    measure: Literal["mean", "median", "stddev", "sum", "distinct"]


class NullLimits(DeclarationModel):
    """How large a share of a column may be missing."""

    column: ColumnName
    warn_above: Fraction | None = None
    error_above: Fraction | None = None

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.warn_above is None and self.error_above is None:
            raise ValueError("needs warn_above, error_above or both")
        return self


class RowCountTolerance(DeclarationModel):
    """By how much the number of rows may differ, up or down, in percent of what it is compared with."""

    warn_percent: Percent | None = None
    error_percent: Percent | None = None


class NeighbourTolerance(RowCountTolerance):
    """Compared with the middle one of the published windows around it, so many on either side."""

    windows: Annotated[int, Field(ge=1, le=50)] = 3


class RowCountLimits(DeclarationModel):
    """How many rows there should be."""

    previous: RowCountTolerance = RowCountTolerance()  # the revision published now
    neighbours: NeighbourTolerance | None = None


class Quality(DeclarationModel):
    """Thresholds of the QA gate, and the suites of Great Expectations in resources/expectations."""

    suite: KeyPart | None = None  # judged before every publication
    deep_suite: KeyPart | None = None  # judged by the scheduled scan of what is published
    stable: bool = False  # the same objects under the same policy always give the same bytes
    ranges: list[Range] = Field(default_factory=list)
    statistics: list[Statistic] = Field(default_factory=list)
    nulls: list[NullLimits] = Field(default_factory=list)
    rows: RowCountLimits = RowCountLimits()

    @property
    def columns(self) -> list[str]:
        """Every column something is said about."""
        bounded: list[Range] = [*self.ranges, *self.statistics]
        return [*(one.column for one in bounded), *(one.column for one in self.nulls)]
