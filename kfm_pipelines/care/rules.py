"""Masking rules, which `masks` applies and `verifier` checks: each method, and which sensitivity class may use it."""

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
    """The place becomes its H3 cell; counts per cell become multiples of the policy's minimum."""

    method: Literal["generalise"]
    resolution: Resolution


class Displace(DeclarationModel):
    """The point is moved by an angle and a distance derived from the secret; other methods are nearly always better."""

    method: Literal["displace"]
    min_m: Annotated[float, Field(gt=0)]
    max_m: Annotated[float, Field(gt=0, le=100_000)]
    reason: NonEmptyText

    @model_validator(mode="after")
    def _check_ring_width(self) -> Self:
        if self.max_m < 2 * self.min_m:
            raise ValueError("max_m must be at least twice min_m, or the ring is too narrow")
        return self


class Group(DeclarationModel):
    """Publishes only counts per H3 cell, in multiples of the minimum; small cells are counted together."""

    method: Literal["group"]
    resolutions: Annotated[list[Resolution], Field(min_length=1, max_length=3)]
    by: list[ColumnName] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_resolutions_differ(self) -> Self:
        if len(set(self.resolutions)) != len(self.resolutions):
            raise ValueError("resolutions must differ")
        return self


class Suppress(DeclarationModel):
    """The record is published without its place."""

    method: Literal["suppress"]


class Omit(DeclarationModel):
    """The record is not published and not counted."""

    method: Literal["omit"]


class MaskRaster(DeclarationModel):
    """Raster cells under a sensitive footprint, widened to an H3 cell, get their common mean or no value."""

    method: Literal["aggregate", "nodata"]
    resolution: Resolution


PointRule = Annotated[Leave | Generalise | Displace | Group | Suppress | Omit, Field(discriminator="method")]
# A shape identifies a feature, so a line or polygon becomes the one cell that contains it, or nothing; it cannot be
# displaced.
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
    """The rules of one class. A kind of geometry without a rule must not occur."""

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
        """Raises ValueError when a rule reveals more than its class allows."""
        if not self.rules and self.raster is None:
            raise ValueError(f"classes.{sensitivity}: has no rule for any kind of geometry")
        for kind, rule in self.rules.items():
            if rule.method not in _METHODS[sensitivity]:
                allowed = ", ".join(sorted(_METHODS[sensitivity]))
                raise ValueError(f"classes.{sensitivity}.{kind}: method must be one of {allowed}, not {rule.method!r}")
            finest = max(resolutions_of(rule), default=0)
            if finest > _MAX_RESOLUTION.get(sensitivity, finest):
                most = _MAX_RESOLUTION[sensitivity]
                raise ValueError(f"classes.{sensitivity}.{kind}: resolution must be at most {most}, not {finest}")


def resolutions_of(rule: Rule) -> list[int]:
    """Returns the resolutions of the H3 cells that a rule publishes instead of places."""
    match rule:
        case Generalise(resolution=one):
            return [one]
        case Group(resolutions=several):
            return list(several)
    return []
