"""What a dataset is: its key, its licence, who provides it, whose it is and where it lies."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from kfm_pipelines.declarations.words import DeclarationModel, KeyPart, NonEmptyText, WindowLength


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
    """The rectangle all places of a dataset lie in, in degrees."""

    west: Annotated[float, Field(ge=-180, le=180)]
    south: Annotated[float, Field(ge=-90, le=90)]
    east: Annotated[float, Field(ge=-180, le=180)]
    north: Annotated[float, Field(ge=-90, le=90)]

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.west >= self.east or self.south >= self.north:
            raise ValueError("west must be less than east, and south less than north")
        return self


class Sovereignty(DeclarationModel):
    """Whose data it is, whoever holds it, and what every reader is told about that."""

    nations: NonEmptyText
    notice: NonEmptyText
