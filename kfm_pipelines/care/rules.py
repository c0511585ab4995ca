"""Masking rules: what is done to one geometry of one sensitivity class.

Belongs here: each method with its parameters, and which class may use which. Does not: doing it (`masks`) or checking
that it was done (`verifier`).
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kfm_pipelines.declarations import ColumnName, DeclarationModel, NonEmptyText

Sensitivity = Literal["open", "generalised", "restricted", "withheld"]
GeometryKind = Literal["point", "line", "polygon"]
Resolution = Annotated[int, Field(ge=0, le=7)]  # cells of resolution 8 and finer are small enough to search on foot


class Leave(DeclarationModel):
    """The place is published as it is."""

    method: Literal["none"]


class Generalise(DeclarationModel):
    """The place becomes the H3 cell it lies in. Records in a cell with too few of them lose their place, and of the
    others so many that every cell has a multiple of the policy's minimum."""

    method: Literal["generalise"]
    resolution: Resolution


class Displace(DeclarationModel):
    """The point is moved, by an angle and a distance that only the secret tells. Another way is nearly always better,
    so this one needs a reason of its own."""

    method: Literal["displace"]
    min_m: Annotated[float, Field(gt=0)]
    max_m: Annotated[float, Field(gt=0, le=100_000)]
    reason: NonEmptyText

    @model_validator(mode="after")
    def _check_ring_width(self) -> Self:
        if self.max_m < 2 * self.min_m:
            raise ValueError("max_m must be at least twice min_m, or the ring is too narrow to hide in")
        return self


class Group(DeclarationModel):
    """Records are not published, only how many there are in each H3 cell. Counts are rounded down to multiples of the
    policy's minimum; cells with too few are counted together, without a place."""

    method: Literal["group"]
    resolutions: Annotated[list[Resolution], Field(min_length=1, max_length=3)]
    by: list[ColumnName] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_resolutions_differ(self) -> Self:
        if len(set(self.resolutions)) != len(self.resolutions):
            raise ValueError("resolutions has the same one twice")
        return self


class Suppress(DeclarationModel):
    """The record is published without its place."""

    method: Literal["suppress"]


class Omit(DeclarationModel):
    """The record is not published and not counted."""

    method: Literal["omit"]


class MaskRaster(DeclarationModel):
    """Cells of a raster under a sensitive footprint, itself widened to an H3 cell, get the mean of all of them, or
    none."""

    method: Literal["aggregate", "nodata"]
    resolution: Resolution


PointRule = Annotated[Leave | Generalise | Displace | Group | Suppress | Omit, Field(discriminator="method")]
# A shape is as good as a name, so lines and polygons become the one cell around their middle that holds all of them,
# or nothing; there is no displacing them as they are.
ShapeRule = Annotated[Leave | Generalise | Suppress | Omit, Field(discriminator="method")]
Rule = Leave | Generalise | Displace | Group | Suppress | Omit

_METHODS: Mapping[Sensitivity, frozenset[str]] = {
    "open": frozenset({"none"}),
    "generalised": frozenset({"generalise", "displace", "group", "suppress", "omit"}),
    "restricted": frozenset({"generalise", "group", "suppress", "omit"}),
    "withheld": frozenset({"suppress", "omit"}),
}
_MAX_RESOLUTION: Mapping[Sensitivity, int] = {"generalised": 7, "restricted": 5}


class ClassRules(DeclarationModel):
    """What is done to the geometries of one class. A kind of geometry without a rule may not occur."""

    point: PointRule | None = None
    line: ShapeRule | None = None
    polygon: ShapeRule | None = None
    raster: MaskRaster | None = None

    def rule_for(self, kind: GeometryKind) -> Rule | None:
        return {"point": self.point, "line": self.line, "polygon": self.polygon}[kind]

    @property
    def rules(self) -> dict[GeometryKind, Rule]:
        kinds: tuple[GeometryKind, ...] = ("point", "line", "polygon")
        return {kind: rule for kind in kinds if (rule := self.rule_for(kind)) is not None}

    def refuse_unless_allowed_for(self, sensitivity: Sensitivity) -> None:
        """ValueError when a rule shows more than its class allows."""
        if not self.rules and self.raster is None:
            raise ValueError(f"classes.{sensitivity}: says nothing about any kind of geometry")
        for kind, rule in self.rules.items():
            if rule.method not in _METHODS[sensitivity]:
                allowed = ", ".join(sorted(_METHODS[sensitivity]))
                raise ValueError(f"classes.{sensitivity}.{kind}: method must be one of {allowed}, not {rule.method!r}")
            finest = max(_resolutions(rule), default=0)
            if finest > _MAX_RESOLUTION.get(sensitivity, finest):
                raise ValueError(
                    f"classes.{sensitivity}.{kind}: resolution may be {_MAX_RESOLUTION[sensitivity]} at most, not {finest}"
                )


def _resolutions(rule: Rule) -> list[int]:
    match rule:
        case Generalise(resolution=one):
            return [one]
        case Group(resolutions=several):
            return list(several)
    return []
