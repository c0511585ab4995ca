"""What a release publishes beside its table: rasters, pictures, metadata of scenes, and properties of its Item."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COG_TYPE = "image/tiff; application=geotiff; profile=cloud-optimized"
PNG_TYPE = "image/png"


@dataclass(frozen=True, slots=True)
class DataFile:
    """`name` is its asset in the STAC Item, and `properties` are what that asset states besides size and checksum."""

    name: str
    suffix: str  # with the dot
    media_type: str
    title: str
    roles: tuple[str, ...]
    data: bytes
    properties: Mapping[str, Any] = field(default_factory=dict)
    bbox: tuple[float, float, float, float] | None = None  # of what it shows, in degrees

    @property
    def file_name(self) -> str:
        """Its name while it is staged, and in the log."""
        return f"{self.name}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Attachments:
    """What a release has beside its table. `properties` are added to those of its Item; `remote` are assets of the Item
    that stay where their provider keeps them, by name."""

    files: tuple[DataFile, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    remote: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.files or self.properties or self.remote)


TABLE_ALONE = Attachments()
