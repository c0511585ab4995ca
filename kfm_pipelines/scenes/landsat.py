"""Scenes of Landsat, Collection 2, Level 2: what their metadata (MTL) and the footprint in USGS's own STAC Item say."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.data_files import COG_TYPE
from kfm_pipelines.declarations.scenes import SceneProduct
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.scenes.documents import Fields, fields_of, read_json, read_time, read_xml
from kfm_pipelines.scenes.facts import FolderObject, SceneFacts, picture_of
from kfm_pipelines.scenes.footprint import read_footprint
from kfm_pipelines.text import quote_value

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

_PRODUCT = re.compile(r"L[A-Z](?P<satellite>0[4-9])_L2S[PR]_\d{6}_(?P<day>\d{8})_\d{8}_02_(RT|T1|T2)", re.ASCII)
_FILE = re.compile(r"[A-Z0-9_]{1,40}\.TIF", re.ASCII)
_COSPAR = {"04": "1982-072A", "05": "1984-021A", "07": "1999-020A", "08": "2013-008A", "09": "2021-088A"}
# Names and wavelengths, in micrometres, of bands of reflectance by their numbers.
Bands = Mapping[str, tuple[str, float]]
_OLI: Bands = {
    "1": ("coastal", 0.44), "2": ("blue", 0.48), "3": ("green", 0.56), "4": ("red", 0.65), "5": ("nir08", 0.86),
    "6": ("swir16", 1.6), "7": ("swir22", 2.2),
}  # fmt: skip
_TM: Bands = {
    "1": ("blue", 0.49), "2": ("green", 0.56), "3": ("red", 0.66), "4": ("nir08", 0.84), "5": ("swir16", 1.65),
    "7": ("swir22", 2.22),
}  # fmt: skip
# Assets that are not bands of reflectance: field of the metadata, name, title, role.
_OTHERS = (
    ("FILE_NAME_QUALITY_L1_PIXEL", "qa_pixel", "Quality of pixels: clouds, shadows, snow, water", "cloud"),
    ("FILE_NAME_QUALITY_L1_RADIOMETRIC_SATURATION", "qa_radsat", "Saturated bands", "saturation"),
    ("FILE_NAME_QUALITY_L2_AEROSOL", "qa_aerosol", "Quality of the correction for aerosols", "metadata"),
    ("FILE_NAME_BAND_ST_B10", "lwir11", "Surface temperature", "temperature"),
    ("FILE_NAME_BAND_ST_B6", "lwir", "Surface temperature", "temperature"),
)


def landsat_objects(folder: str) -> tuple[FolderObject, ...]:
    product = product_of(folder)
    title = "Metadata of the scene by USGS"
    xml = FolderObject(f"{product}_MTL.xml", "mtl", "application/xml", title)
    return (
        FolderObject(f"{product}_MTL.json", "mtl", "application/json", title, instead=xml),
        FolderObject(f"{product}_SR_stac.json", "usgs_item", "application/json", "STAC Item by USGS", optional=True),
        picture_of(f"{product}_thumb_small.jpeg"),
    )


def landsat_bands(folder: str) -> tuple[str, ...]:
    """Returns the names of red, near infrared and the quality of pixels."""
    product = product_of(folder)
    numbers = {name: number for number, (name, _) in _bands_of(product).items()}
    return (f"{product}_SR_B{numbers['red']}.TIF", f"{product}_SR_B{numbers['nir08']}.TIF", f"{product}_QA_PIXEL.TIF")


def product_of(folder: str) -> str:
    product = folder.rstrip("/").rpartition("/")[2]
    if not _PRODUCT.fullmatch(product):
        raise InputUnreadable(f"{folder} must be named after a product of Landsat Collection 2, Level 2")
    return product


def read_landsat_scene(product: SceneProduct, folder: str, objects: Mapping[str, bytes]) -> SceneFacts:
    scene_id = product_of(folder)
    metadata = _read_metadata(folder, scene_id, objects)
    _check_identity(metadata, scene_id)
    image = "IMAGE_ATTRIBUTES"
    clouds, azimuth = metadata.number(f"{image}.CLOUD_COVER"), metadata.optional_number(f"{image}.SUN_AZIMUTH")
    elevation = metadata.optional_number(f"{image}.SUN_ELEVATION")
    return SceneFacts(
        scene_id=scene_id,
        platform=metadata.text(f"{image}.SPACECRAFT_ID").lower().replace("_", "-"),
        acquired_at=_acquisition_time(metadata),
        cloud_cover=clouds if clouds >= 0 else None,  # -1: not known
        sun_azimuth=None if azimuth is None else azimuth % 360,
        sun_elevation=elevation,
        epsg=_epsg(metadata),
        href=folder,
        footprint=_footprint(folder, scene_id, objects, metadata),
        sensor=_sensor(metadata),
        properties=_properties(metadata, scene_id),
        assets=_assets(metadata, scene_id, folder),
    )


def _read_metadata(folder: str, scene_id: str, objects: Mapping[str, bytes]) -> Fields:
    name = f"{scene_id}_MTL.json"
    if name in objects:
        document = read_json(objects[name], f"{folder}{name}")
        inner = document.find("LANDSAT_METADATA_FILE")
        return Fields(inner if isinstance(inner, Mapping) else {}, document.name)
    name = f"{scene_id}_MTL.xml"
    if name not in objects:
        raise InputUnreadable(f"{folder} has no metadata: {scene_id}_MTL.json and {name} are missing")
    return fields_of(read_xml(objects[name], f"{folder}{name}"), f"{folder}{name}")


def _check_identity(metadata: Fields, scene_id: str) -> None:
    """The metadata must be those of the product that the folder is named after."""
    stated = metadata.text("PRODUCT_CONTENTS.LANDSAT_PRODUCT_ID")
    if stated != scene_id:
        raise InputUnreadable(f"{metadata.name} is about {quote_value(stated)}, not {scene_id}")
    expected = _PRODUCT.fullmatch(scene_id)
    day = metadata.text("IMAGE_ATTRIBUTES.DATE_ACQUIRED")
    if expected is None or day.replace("-", "") != expected["day"]:
        raise InputUnreadable(f"{metadata.name}: DATE_ACQUIRED is {quote_value(day)}, not the day in its product's id")


def _acquisition_time(metadata: Fields) -> datetime:
    day, time = (metadata.text(f"IMAGE_ATTRIBUTES.{name}") for name in ("DATE_ACQUIRED", "SCENE_CENTER_TIME"))
    return read_time(f"{day}T{time}", f"{metadata.name}: SCENE_CENTER_TIME")


def _bands_of(scene_id: str) -> Bands:
    found = _PRODUCT.fullmatch(scene_id)
    return _OLI if found and found["satellite"] in ("08", "09") else _TM


def _epsg(metadata: Fields) -> int | None:
    """Scenes of the south have UTM zones of the north too, with negative northings; Antarctica is polar."""
    projection = "PROJECTION_ATTRIBUTES"
    if metadata.find(f"{projection}.MAP_PROJECTION") == "UTM":
        zone = metadata.whole_number(f"{projection}.UTM_ZONE")
        if not 1 <= zone <= 60:
            raise InputUnreadable(f"{metadata.name}: UTM_ZONE must be 1 to 60, not {zone}")
        return 32600 + zone
    return 3031 if metadata.number(f"{projection}.CORNER_UL_LAT_PRODUCT") < 0 else None


def _footprint(folder: str, scene_id: str, objects: Mapping[str, bytes], metadata: Fields) -> "BaseGeometry":
    """Returns the outline that USGS states; without it the corners, between which some pixels have no value."""
    name = f"{scene_id}_SR_stac.json"
    if name in objects:
        item = read_json(objects[name], f"{folder}{name}")
        if item.find("id") not in (scene_id, f"{scene_id}_SR"):
            raise InputUnreadable(f"{item.name} is about {quote_value(item.find('id'))}, not {scene_id}")
        return read_footprint(item.find("geometry"), item.name)
    corners = [
        [metadata.number(f"PROJECTION_ATTRIBUTES.CORNER_{corner}_{axis}_PRODUCT") for axis in ("LON", "LAT")]
        for corner in ("UL", "UR", "LR", "LL", "UL")
    ]
    return read_footprint({"type": "Polygon", "coordinates": [corners]}, metadata.name)


def _sensor(metadata: Fields) -> dict[str, Any]:
    return {
        "constellation": "landsat",
        "platform": metadata.text("IMAGE_ATTRIBUTES.SPACECRAFT_ID").lower().replace("_", "-"),
        "instruments": metadata.text("IMAGE_ATTRIBUTES.SENSOR_ID").lower().split("_"),
        "gsd": metadata.number("PROJECTION_ATTRIBUTES.GRID_CELL_SIZE_REFLECTIVE"),
    }


def _properties(metadata: Fields, scene_id: str) -> dict[str, Any]:
    image, contents = "IMAGE_ATTRIBUTES", "PRODUCT_CONTENTS"
    satellite = scene_id[2:4]
    station, land = metadata.find(f"{image}.STATION_ID"), metadata.optional_number(f"{image}.CLOUD_COVER_LAND")
    return {
        "view:off_nadir": _off_nadir(metadata),
        **({"sat:platform_international_designator": _COSPAR[satellite]} if satellite in _COSPAR else {}),
        **({"sat:acquisition_station": station} if isinstance(station, str) and station else {}),
        "landsat:scene_id": metadata.text("LEVEL1_PROCESSING_RECORD.LANDSAT_SCENE_ID"),
        "landsat:collection_category": metadata.text(f"{contents}.COLLECTION_CATEGORY"),
        "landsat:collection_number": f"{metadata.whole_number(f'{contents}.COLLECTION_NUMBER'):02d}",
        "landsat:wrs_type": metadata.text(f"{image}.WRS_TYPE"),
        "landsat:wrs_path": f"{metadata.whole_number(f'{image}.WRS_PATH'):03d}",
        "landsat:wrs_row": f"{metadata.whole_number(f'{image}.WRS_ROW'):03d}",
        "landsat:cloud_cover_land": -1 if land is None else land,
        "landsat:correction": metadata.text(f"{contents}.PROCESSING_LEVEL"),
    }


def _off_nadir(metadata: Fields) -> float:
    if metadata.find("IMAGE_ATTRIBUTES.NADIR_OFFNADIR") != "OFFNADIR":
        return 0.0
    return min(abs(metadata.optional_number("IMAGE_ATTRIBUTES.ROLL_ANGLE") or 0.0), 90.0)


def _assets(metadata: Fields, scene_id: str, folder: str) -> dict[str, dict[str, Any]]:
    grid, assets = _grid(metadata), {}
    for number, (name, wavelength) in _bands_of(scene_id).items():
        if (href := _href(metadata, f"FILE_NAME_BAND_{number}", scene_id, folder)) is None:
            continue
        scaling = "LEVEL2_SURFACE_REFLECTANCE_PARAMETERS.REFLECTANCE"
        assets[name] = {
            "href": href,
            "title": f"Surface reflectance, band {number}",
            "type": COG_TYPE,
            "roles": ["data", "reflectance"],
            "bands": [{"name": f"SR_B{number}", "eo:common_name": name, "eo:center_wavelength": wavelength}],
            "data_type": "uint16",
            "nodata": 0,
            "raster:scale": metadata.number(f"{scaling}_MULT_BAND_{number}"),
            "raster:offset": metadata.number(f"{scaling}_ADD_BAND_{number}"),
            **grid,
        }
    for field, name, title, role in _OTHERS:
        if (href := _href(metadata, field, scene_id, folder)) is not None:
            assets[name] = {"href": href, "title": title, "type": COG_TYPE, "roles": ["data", role], **grid}
    return assets


def _href(metadata: Fields, field: str, scene_id: str, folder: str) -> str | None:
    """Returns where a file of the scene is; its name may not lead out of the folder."""
    name = metadata.find(f"PRODUCT_CONTENTS.{field}")
    if name is None:
        return None
    if not isinstance(name, str) or not _FILE.fullmatch(name.removeprefix(f"{scene_id}_")):
        raise InputUnreadable(f"{metadata.name}: {field} must be a file of the scene, not {quote_value(name)}")
    return f"{folder}{name}"


def _grid(metadata: Fields) -> dict[str, Any]:
    """Describes the grid of the bands. Corners are centres of pixels."""
    projection, epsg = "PROJECTION_ATTRIBUTES", _epsg(metadata)
    size = metadata.number(f"{projection}.GRID_CELL_SIZE_REFLECTIVE")
    west = metadata.number(f"{projection}.CORNER_UL_PROJECTION_X_PRODUCT") - size / 2
    north = metadata.number(f"{projection}.CORNER_UL_PROJECTION_Y_PRODUCT") + size / 2
    shape = [metadata.whole_number(f"{projection}.REFLECTIVE_{axis}") for axis in ("LINES", "SAMPLES")]
    described = {"proj:shape": shape, "proj:transform": [size, 0.0, west, 0.0, -size, north]}
    code = {} if epsg is None else {"proj:code": f"EPSG:{epsg}"}
    return {**code, **described, "raster:spatial_resolution": size}
