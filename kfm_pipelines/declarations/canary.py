"""A candidate for the next transform version: how many keys try it, and when it counts as good."""

from typing import Annotated, Literal

from pydantic import Field

from kfm_pipelines.declarations.quality import Percent
from kfm_pipelines.declarations.words import DeclarationModel, KeyPart


class Tolerance(DeclarationModel):
    """How far the candidate's output may be from what is published."""

    rows_percent: Percent = 0.0
    changed_percent: Percent = 0.0  # of the rows: added, removed, or with another value in a column both have
    statistics_percent: Percent = 0.0
    columns: Literal["identical", "additive", "any"] = "identical"


class Canary(DeclarationModel):
    """The candidate is a whole declaration: resources/candidates/{pipeline}@{transform_version}.yaml."""

    transform_version: KeyPart
    fraction: Annotated[float, Field(gt=0, le=1)]
    keys: Annotated[int, Field(ge=1)] = 20  # compared, and found good, before it may be promoted
    tolerance: Tolerance = Tolerance()
