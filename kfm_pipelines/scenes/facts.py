"""What is known of a scene, and which objects of its folder it is known from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
MAX_PICTURE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FolderObject:
    """An object of a scene's folder that is read and published with its description.

    `instead` is read where the object is missing. An optional one may be missing.
    """

    name: str  # within the folder
    asset: str  # its name in the STAC Item
    media_type: str
    title: str
    roles: tuple[str, ...] = ("metadata",)
    optional: bool = False
    instead: "FolderObject | None" = None
    max_bytes: int = MAX_DOCUMENT_BYTES

    @property
    def suffix(self) -> str:
        return self.name[self.name.rindex(".") :].lower()


def picture_of(name: str) -> FolderObject:
    return FolderObject(
        name,
        asset="thumbnail",
        media_type="image/jpeg",
        title="Picture of the scene by its provider",
        roles=("thumbnail",),
        optional=True,
        max_bytes=MAX_PICTURE_BYTES,
    )


@dataclass(frozen=True, slots=True)
class SceneFacts:
    """A scene as its metadata describe it. Fields that they leave out are None."""

    scene_id: str
    platform: str
    acquired_at: datetime
    cloud_cover: float | None  # per cent
    sun_azimuth: float | None
    sun_elevation: float | None
    epsg: int | None  # of its bands
    href: str  # of its folder
    footprint: "BaseGeometry" = field(repr=False)  # in degrees
    sensor: Mapping[str, Any] = field(repr=False)  # common metadata of STAC that scenes of one satellite share
    properties: Mapping[str, Any] = field(repr=False)  # of extensions of STAC
    assets: Mapping[str, Mapping[str, Any]] = field(repr=False)  # that stay where the provider keeps them

    def touches(self, shape: "BaseGeometry") -> bool:
        """Whether it sees something of an area; a common edge is nothing."""
        return bool(self.footprint.intersects(shape)) and bool(self.footprint.intersection(shape).area > 0)
