"""What a dataset is: its key, licence, providers, sovereignty and extent."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from kfm_pipelines.declarations.splits import SplitBy
from kfm_pipelines.declarations.words import ColumnName, DeclarationModel, KeyPart, NonEmptyText, WindowLength

BBox = tuple[float, float, float, float]  # west, south, east, north
UNDECIDED_LICENCE = "LicenseRef-undecided"  # stands in a new declaration until somebody writes the right one


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
    # A group of `input.object_pattern`, such as tile or station: each of its values in a window has a key of its own.
    fold_by: ColumnName | None = None
    split_by: SplitBy | None = None  # gives the rows of one object to several keys

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        if self.fold_by and self.split_by:
            raise ValueError("fold_by and split_by exclude each other: both name the member in a key")
        return self

    @property
    def has_members(self) -> bool:
        """Whether a dash and the name of a tile, station, county or cell follow the AOI in each key."""
        return self.fold_by is not None or self.split_by is not None


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
