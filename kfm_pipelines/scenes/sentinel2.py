"""Tiles of Sentinel-2, Level 1C and 2A, as their buckets at AWS describe them: `tileInfo.json` and `metadata.xml`."""

import re
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any
from xml.etree.ElementTree import Element

from kfm_pipelines.declarations.scenes import SceneProduct
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.scenes.documents import Fields, finite, read_json, read_time, read_xml
from kfm_pipelines.scenes.facts import FolderObject, SceneFacts, picture_of
from kfm_pipelines.scenes.footprint import read_footprint
from kfm_pipelines.text import quote_value

TILE_INFO, METADATA = "tileInfo.json", "metadata.xml"
JPEG_2000 = "image/jp2"
_PRODUCT = re.compile(
    r"S2[A-D]_MSIL(1C|2A)_\d{8}T\d{6}_N(?P<baseline>\d{4})_R(?P<orbit>\d{3})_(?P<tile>T\d{2}[A-Z]{3})_\w+",
    re.ASCII,
)
_TILE_ID = re.compile(r"S2[A-D]_\w+_A(?P<orbit>\d{6})_(?P<tile>T\d{2}[A-Z]{3})_N\d\d\.\d\d", re.ASCII)
_EPSG = re.compile(r"(?:urn:ogc:def:crs:EPSG:[\d.]*:|EPSG:)(?P<code>\d{4,5})", re.ASCII)
_COSPAR = {"S2A": "2015-028A", "S2B": "2017-013A", "S2C": "2024-157A"}
_OFFSET_SINCE = 400  # the processing baseline from which digital numbers are 1000 too large
# Band, name in STAC, wavelength in micrometres and size of a pixel in metres.
_BANDS: tuple[tuple[str, str, float, int], ...] = (
    ("B01", "coastal", 0.443, 60), ("B02", "blue", 0.490, 10), ("B03", "green", 0.560, 10), ("B04", "red", 0.665, 10),
    ("B05", "rededge071", 0.704, 20), ("B06", "rededge075", 0.741, 20), ("B07", "rededge078", 0.783, 20),
    ("B08", "nir", 0.842, 10), ("B8A", "nir08", 0.865, 20), ("B09", "nir09", 0.945, 60), ("B10", "cirrus", 1.374, 60),
    ("B11", "swir16", 1.610, 20), ("B12", "swir22", 2.190, 20),
)  # fmt: skip


def sentinel2_objects(folder: str) -> tuple[FolderObject, ...]:
    return (
        FolderObject(TILE_INFO, "tile_info", "application/json", "Tile by its distributor"),
        FolderObject(METADATA, "metadata", "application/xml", "Metadata of the tile by ESA"),
        picture_of("preview.jpg"),
    )


def read_sentinel2_tile(product: SceneProduct, folder: str, objects: Mapping[str, bytes]) -> SceneFacts:
    for name in (TILE_INFO, METADATA):
        if name not in objects:
            raise InputUnreadable(f"{folder} has no metadata: {name} is missing")
    info = read_json(objects[TILE_INFO], f"{folder}{TILE_INFO}")
    metadata = _TileMetadata(read_xml(objects[METADATA], f"{folder}{METADATA}"), f"{folder}{METADATA}")
    tile = _check_identity(product, folder, info, metadata)
    named = _PRODUCT.fullmatch(info.text("productName"))
    epsg, clouds = metadata.epsg(), metadata.optional_number("CLOUDY_PIXEL_PERCENTAGE")
    satellite = metadata.text("TILE_ID")[:3]
    zenith, azimuth = (metadata.optional_number(f"Mean_Sun_Angle/{angle}_ANGLE") for angle in ("ZENITH", "AZIMUTH"))
    return SceneFacts(
        scene_id=info.text("productName") if named and named["tile"] == tile else metadata.text("TILE_ID"),
        platform=f"sentinel-2{satellite[-1].lower()}",
        acquired_at=read_time(metadata.text("SENSING_TIME"), f"{metadata.name}: SENSING_TIME"),
        # The tile info has 0 for tiles whose clouds were counted later.
        cloud_cover=info.optional_number("cloudyPixelPercentage") if clouds is None else clouds,
        sun_azimuth=None if azimuth is None else azimuth % 360,
        sun_elevation=None if zenith is None else 90 - zenith,
        epsg=epsg,
        href=folder,
        footprint=_footprint(info, epsg),
        sensor={
            "constellation": "sentinel-2",
            "platform": f"sentinel-2{satellite[-1].lower()}",
            "instruments": ["msi"],
            "gsd": 10,
        },
        properties=_properties(metadata, satellite, named),
        assets=_assets(product, folder, metadata, named),
    )


class _TileMetadata:
    """The metadata of a tile, whose elements are found by name anywhere below the root."""

    def __init__(self, root: Element, name: str) -> None:
        self.root = root
        self.name = name

    def text(self, path: str) -> str:
        found = self._find(path)
        if not found:
            raise InputUnreadable(f"{self.name}: {path} is missing")
        return found

    def optional_number(self, path: str) -> float | None:
        found = self._find(path)
        try:
            return finite(found) if found else None
        except ValueError:
            raise InputUnreadable(f"{self.name}: {path} must be a number, not {quote_value(found)}") from None

    def whole_number(self, path: str) -> int:
        number = self.optional_number(path)
        if number is None or number != int(number):
            raise InputUnreadable(f"{self.name}: {path} must be a whole number")
        return int(number)

    def epsg(self) -> int:
        stated = self.text("HORIZONTAL_CS_CODE")
        return _read_epsg(stated, self.name)

    def _find(self, path: str) -> str | None:
        found = self.root.findtext(f".//{path}")
        return found.strip() if found else None


def _read_epsg(stated: object, name: str) -> int:
    found = _EPSG.fullmatch(stated) if isinstance(stated, str) else None
    if found is None:
        raise InputUnreadable(f"{name}: the reference system must be a code of EPSG, not {quote_value(stated)}")
    return int(found["code"])


def _check_identity(product: SceneProduct, folder: str, info: Fields, metadata: _TileMetadata) -> str:
    """Returns the tile. Both documents must be about the folder and the declared level of processing."""
    path = info.text("path").strip("/")
    if not folder.endswith(f"/{path}/"):
        raise InputUnreadable(f"{info.name} is about {quote_value(path)}, not its own folder")
    zone, band, square = info.whole_number("utmZone"), info.text("latitudeBand"), info.text("gridSquare")
    tile = f"T{zone:02d}{band}{square}"
    if not path.startswith(f"tiles/{zone}/{band}/{square}/"):
        raise InputUnreadable(f"{info.name}: its path is not that of {quote_value(tile)}, its tile")
    found = _TILE_ID.fullmatch(metadata.text("TILE_ID"))
    if found is None or found["tile"] != tile:
        raise InputUnreadable(f"{metadata.name} is about {quote_value(metadata.text('TILE_ID'))}, not tile {tile}")
    level = {"sentinel-2-l1c": "Level-1C", "sentinel-2-l2a": "Level-2A"}[product]
    if metadata.root.tag != f"{level}_Tile_ID":
        raise InputUnreadable(f"{metadata.name} must describe a tile of {level}, not {quote_value(metadata.root.tag)}")
    return tile


def _footprint(info: Fields, epsg: int) -> Any:
    """Returns the outline of what was seen, or of the tile where that is not stated."""
    name = "tileDataGeometry" if info.find("tileDataGeometry.coordinates") else "tileGeometry"
    stated = _read_epsg(info.find(f"{name}.crs.properties.name"), f"{info.name}: {name}")
    if stated != epsg:
        raise InputUnreadable(f"{info.name}: {name} is in EPSG:{stated}, and {METADATA} has EPSG:{epsg}")
    return read_footprint(info.find(name), f"{info.name}: {name}", epsg)


def _properties(metadata: _TileMetadata, satellite: str, named: re.Match[str] | None) -> dict[str, Any]:
    found = _TILE_ID.fullmatch(metadata.text("TILE_ID"))
    snow = metadata.optional_number("SNOW_ICE_PERCENTAGE")
    angles = list(_viewing_angles(metadata))
    return {
        **({} if snow is None else {"eo:snow_cover": snow}),
        **({"view:incidence_angle": fmean(angles)} if angles else {}),
        **({"sat:platform_international_designator": _COSPAR[satellite]} if satellite in _COSPAR else {}),
        **({"sat:absolute_orbit": int(found["orbit"])} if found else {}),
        **({"sat:relative_orbit": int(named["orbit"])} if named else {}),
    }


def _viewing_angles(metadata: _TileMetadata) -> Iterator[float]:
    """Yields the mean zenith angle of each band, without bands that saw nothing."""
    for angle in metadata.root.iterfind(".//Mean_Viewing_Incidence_Angle/ZENITH_ANGLE"):
        try:
            yield finite(angle.text or "")
        except ValueError:
            continue


def _assets(
    product: SceneProduct, folder: str, metadata: _TileMetadata, named: re.Match[str] | None
) -> dict[str, dict[str, Any]]:
    surface = product == "sentinel-2-l2a"
    offset = -0.1 if named and int(named["baseline"]) >= _OFFSET_SINCE else 0.0
    grids = {size: _grid(metadata, size) for size in (10, 20, 60)}
    assets: dict[str, dict[str, Any]] = {}
    for band, name, wavelength, size in _BANDS:
        if surface and band == "B10":  # not part of Level 2A, because it sees no ground
            continue
        assets[band.lower()] = {
            "href": f"{folder}R{size}m/{band}.jp2" if surface else f"{folder}{band}.jp2",
            "title": f"{'Surface' if surface else 'Top-of-atmosphere'} reflectance, band {band}",
            "type": JPEG_2000,
            "roles": ["data", "reflectance"],
            "bands": [{"name": band, "eo:common_name": name, "eo:center_wavelength": wavelength}],
            "data_type": "uint16",
            "nodata": 0,
            "raster:scale": 0.0001,
            "raster:offset": offset,
            **grids[size],
        }
    if surface:
        classes = {"href": f"{folder}R20m/SCL.jp2", "title": "Classes of the scene: clouds, shadows, water, plants"}
        assets["scl"] = {**classes, "type": JPEG_2000, "roles": ["data", "cloud"], **grids[20]}
    return assets


def _grid(metadata: _TileMetadata, size: int) -> dict[str, Any]:
    place, extent = f"Geoposition[@resolution='{size}']", f"Size[@resolution='{size}']"
    west, north = (metadata.whole_number(f"{place}/{name}") for name in ("ULX", "ULY"))
    return {
        "proj:code": f"EPSG:{metadata.epsg()}",
        "proj:shape": [metadata.whole_number(f"{extent}/{name}") for name in ("NROWS", "NCOLS")],
        "proj:transform": [size, 0, west, 0, -size, north],
        "raster:spatial_resolution": size,
    }
