"""Scenes of Landsat in the form that USGS gives them, 256 pixels wide, in the Flint Hills; all values are invented."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.picture import small_picture
from kfm_pipelines.producer.samples.sample import seeded_random

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PATH, ROW, ZONE = "028", "033", 14
SIZE, PIXEL_M = 256, 30.0
WEST_M, NORTH_M = 705_000.0, 4_310_010.0  # outer edge of the first pixel, UTM
SCALE, OFFSET = 0.0000275, -0.2
CLEAR, CLOUD, FILL = 21824, 22280, 1  # of QA_PIXEL
_REVISIT = timedelta(days=8)


def landsat_days(start: datetime, count: int) -> tuple[datetime, ...]:
    """Two satellites together pass every eight days."""
    first = window_of(start, "day").start
    return tuple(first + step * _REVISIT for step in range(count))


def landsat_product(day: datetime) -> str:
    return f"LC09_L2SP_{PATH}{ROW}_{day:%Y%m%d}_{day + timedelta(days=2):%Y%m%d}_02_T1"


def landsat_folder(day: datetime) -> str:
    root = "collection02/level-2/standard/oli-tirs"
    return f"{root}/{day:%Y}/{PATH}/{ROW}/{landsat_product(day)}/"


def landsat_message(day: datetime, bucket: str) -> dict[str, Any]:
    """Returns the message of the topic public-c2-notify-v2."""
    return {"landsat_product_id": landsat_product(day), "s3_location": f"s3://{bucket}/{landsat_folder(day)}"}


def landsat_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    """Returns the metadata, which come last into the folder."""
    day = window_of(window_start, "day").start
    return f"{landsat_folder(day)}{landsat_product(day)}_MTL.json", json.dumps(_metadata(day, seed)).encode()


def landsat_scene(window_start: datetime, *, seed: int = 0) -> Mapping[str, bytes]:
    """Returns the other objects of the folder: the bands of red, near infrared and quality, outline and picture."""
    day = window_of(window_start, "day").start
    start = f"{landsat_folder(day)}{landsat_product(day)}"
    red, infrared, quality = _bands(day, seed)
    item = {"type": "Feature", "id": landsat_product(day), "geometry": _outline(), "properties": {}}
    return {
        f"{start}_SR_B4.TIF": _geotiff(red),
        f"{start}_SR_B5.TIF": _geotiff(infrared),
        f"{start}_QA_PIXEL.TIF": _geotiff(quality),
        f"{start}_SR_stac.json": json.dumps(item).encode(),
        f"{start}_thumb_small.jpeg": small_picture(seeded_random(seed, "landsat", day.isoformat())),
    }


def _metadata(day: datetime, seed: int) -> dict[str, Any]:
    chance, product = seeded_random(seed, "landsat", day.isoformat()), landsat_product(day)
    bands = range(1, 8)
    image = {
        "SPACECRAFT_ID": "LANDSAT_9", "SENSOR_ID": "OLI_TIRS", "WRS_TYPE": "2", "WRS_PATH": str(int(PATH)),
        "WRS_ROW": str(int(ROW)), "NADIR_OFFNADIR": "NADIR", "DATE_ACQUIRED": f"{day:%Y-%m-%d}",
        "SCENE_CENTER_TIME": f"17:0{chance.randint(5, 9)}:{chance.randint(10, 59)}.1234567Z", "STATION_ID": "LGN",
        "CLOUD_COVER": f"{chance.uniform(2, 40):.2f}", "CLOUD_COVER_LAND": f"{chance.uniform(2, 40):.2f}",
        "ROLL_ANGLE": "0.000", "SUN_AZIMUTH": "157.83264721", "SUN_ELEVATION": f"{chance.uniform(25, 65):.8f}",
    }  # fmt: skip
    contents = {
        "LANDSAT_PRODUCT_ID": product, "PROCESSING_LEVEL": "L2SP", "COLLECTION_NUMBER": "02",
        "COLLECTION_CATEGORY": "T1", "OUTPUT_FORMAT": "GEOTIFF",
        **{f"FILE_NAME_BAND_{band}": f"{product}_SR_B{band}.TIF" for band in bands},
        "FILE_NAME_BAND_ST_B10": f"{product}_ST_B10.TIF",
        "FILE_NAME_QUALITY_L1_PIXEL": f"{product}_QA_PIXEL.TIF",
    }  # fmt: skip
    scaling = {f"REFLECTANCE_MULT_BAND_{band}": "2.75e-05" for band in bands}
    scaling |= {f"REFLECTANCE_ADD_BAND_{band}": "-0.2" for band in bands}
    return {
        "LANDSAT_METADATA_FILE": {
            "PRODUCT_CONTENTS": contents,
            "IMAGE_ATTRIBUTES": image,
            "PROJECTION_ATTRIBUTES": _projection(),
            "LEVEL2_SURFACE_REFLECTANCE_PARAMETERS": scaling,
            "LEVEL1_PROCESSING_RECORD": {"LANDSAT_SCENE_ID": f"LC9{PATH}{ROW}{day:%Y%j}LGN00"},
        }
    }


def _projection() -> dict[str, str]:
    west, north = WEST_M + PIXEL_M / 2, NORTH_M - PIXEL_M / 2
    corners = dict(zip(("UL", "UR", "LR", "LL"), _outline()["coordinates"][0], strict=False))
    return {
        "MAP_PROJECTION": "UTM", "DATUM": "WGS84", "UTM_ZONE": str(ZONE), "GRID_CELL_SIZE_REFLECTIVE": f"{PIXEL_M:.2f}",
        "REFLECTIVE_LINES": str(SIZE), "REFLECTIVE_SAMPLES": str(SIZE),
        **{f"CORNER_{name}_LON_PRODUCT": f"{place[0]:.5f}" for name, place in corners.items()},
        **{f"CORNER_{name}_LAT_PRODUCT": f"{place[1]:.5f}" for name, place in corners.items()},
        "CORNER_UL_PROJECTION_X_PRODUCT": f"{west:.3f}", "CORNER_UL_PROJECTION_Y_PRODUCT": f"{north:.3f}",
    }  # fmt: skip


def _outline() -> dict[str, Any]:
    from pyproj import Transformer

    to_degrees = Transformer.from_crs(32600 + ZONE, 4326, always_xy=True)
    east, south = WEST_M + SIZE * PIXEL_M, NORTH_M - SIZE * PIXEL_M
    ring = [(WEST_M, NORTH_M), (east, NORTH_M), (east, south), (WEST_M, south), (WEST_M, NORTH_M)]
    return {
        "type": "Polygon",
        "coordinates": [[[round(degree, 6) for degree in to_degrees.transform(*place)] for place in ring]],
    }


def _bands(day: datetime, seed: int) -> "tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]":
    """Fields in a pattern, greener in summer; a cloud hides one corner, and the first rows have no value."""
    import numpy as np

    chance = np.random.default_rng([seed, day.toordinal()])
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    summer = 0.5 - 0.5 * np.cos(2 * np.pi * (day.timetuple().tm_yday - 15) / 365)
    green = 0.15 + 0.5 * summer * (0.5 + 0.5 * np.sin(rows / 17.0) * np.cos(columns / 23.0))
    noise = chance.integers(-20, 21, (2, SIZE, SIZE))
    red = np.rint((0.12 - 0.06 * green - OFFSET) / SCALE) + noise[0]
    infrared = np.rint((0.15 + 0.35 * green - OFFSET) / SCALE) + noise[1]
    quality = np.full((SIZE, SIZE), CLEAR, np.uint16)
    quality[rows + columns < SIZE // 4] = CLOUD
    quality[:4] = FILL
    empty = quality == FILL
    red, infrared = (np.where(empty, 0, band).astype(np.uint16) for band in (red, infrared))
    return red, infrared, quality


def _geotiff(band: "NDArray[np.uint16]") -> bytes:
    from rasterio.io import MemoryFile
    from rasterio.transform import from_origin

    grid = {"transform": from_origin(WEST_M, NORTH_M, PIXEL_M, PIXEL_M), "crs": f"EPSG:{32600 + ZONE}"}
    shape = {"width": SIZE, "height": SIZE, "count": 1, "dtype": "uint16"}
    tiles = {"tiled": True, "blockxsize": 256, "blockysize": 256, "compress": "deflate"}
    with MemoryFile() as file:
        with file.open(driver="GTiff", **shape, **grid, **tiles) as target:
            target.write(band, 1)
        return bytes(file.read())
