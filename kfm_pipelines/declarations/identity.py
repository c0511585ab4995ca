"""What a dataset is: its key, licence, providers, sovereignty and extent."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from kfm_pipelines.declarations.words import DeclarationModel, KeyPart, NonEmptyText, WindowLength

BBox = tuple[float, float, float, float]  # west, south, east, north


class Licence(DeclarationModel):
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.+-]+$")]
    url: NonEmptyText


class Provider(DeclarationModel):
    name: str
    roles: list[Literal["licensor", "producer", "processor", "host"]]
    url: str | None = None


class KeyTemplate(DeclarationModel):
    """The parts of the canonical key that are the same for every window."""

    source: KeyPart
    aoi: KeyPart
    h3_res: Annotated[str, StringConstraints(pattern=r"^(none|[0-9]|1[0-5])$")]
    window: WindowLength
    transform_version: KeyPart


class Extent(DeclarationModel):
    """The rectangle that contains all places of a dataset, in degrees."""

    west: Annotated[float, Field(ge=-180, le=180)]
    south: Annotated[float, Field(ge=-90, le=90)]
    east: Annotated[float, Field(ge=-180, le=180)]
    north: Annotated[float, Field(ge=-90, le=90)]

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.west >= self.east or self.south >= self.north:
            raise ValueError("west must be less than east, and south less than north")
        return self

    @property
    def box(self) -> BBox:
        return (self.west, self.south, self.east, self.north)


class Sovereignty(DeclarationModel):
    """The nations the data belongs to, and the notice that every reader sees."""

    nations: NonEmptyText
    notice: NonEmptyText


def box_from(values: Sequence[float] | None) -> BBox | None:
    """Converts the list in which a database row or JSON holds a box."""
    return (values[0], values[1], values[2], values[3]) if values else None


def union(boxes: Iterable[BBox | None]) -> BBox | None:
    found = [box for box in boxes if box]
    if not found:
        return None
    return (min(b[0] for b in found), min(b[1] for b in found), max(b[2] for b in found), max(b[3] for b in found))
