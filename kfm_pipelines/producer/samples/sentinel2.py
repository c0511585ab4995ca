"""A tile of Sentinel-2 in the form that its bucket at AWS gives it, in central Kansas; every value is invented."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.picture import small_picture
from kfm_pipelines.producer.samples.sample import seeded_random
from kfm_pipelines.text import write_timestamp

ZONE, BAND, SQUARE = 14, "S", "PH"
WEST_M, NORTH_M, SIDE_M = 600_000, 4_300_020, 109_800
EPSG = 32600 + ZONE
_REVISIT = timedelta(days=5)


def sentinel2_days(start: datetime, count: int) -> tuple[datetime, ...]:
    first = window_of(start, "day").start
    return tuple(first + step * _REVISIT for step in range(count))


def sentinel2_product(day: datetime) -> str:
    times = f"{day:%Y%m%d}T171121_N0511_R112_T{ZONE}{BAND}{SQUARE}_{day:%Y%m%d}T213002"
    return f"S2B_MSIL2A_{times}"


def sentinel2_path(day: datetime) -> str:
    """Without leading zeros, as the provider writes it."""
    return f"tiles/{ZONE}/{BAND}/{SQUARE}/{day.year}/{day.month}/{day.day}/0"


def sentinel2_message(day: datetime, bucket: str) -> dict[str, Any]:
    """Returns the message of the topic SentinelS2L2A; it leaves the bucket to the level in the product's name."""
    del bucket
    product, sensed = sentinel2_product(day), write_timestamp(_sensed(day))
    return {
        "id": f"{day:%Y%m%d}-0000-4000-8000-000000000000",
        "name": product,
        "path": f"products/{day.year}/{day.month}/{day.day}/{product}",
        "timestamp": sensed,
        "datatakeIdentifier": f"GS2B_{day:%Y%m%d}T171121_040123_N05.11",
        "s3Ingestion": write_timestamp(day + timedelta(hours=23)),
        "tiles": [
            {
                "path": sentinel2_path(day),
                "timestamp": sensed,
                "utmZone": ZONE,
                "latitudeBand": BAND,
                "gridSquare": SQUARE,
            }
        ],
    }


def sentinel2_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    """Returns the description of the tile, which comes last into the folder."""
    day = window_of(window_start, "day").start
    chance = seeded_random(seed, "sentinel-2", day.isoformat())
    info = {
        "path": sentinel2_path(day),
        "timestamp": write_timestamp(_sensed(day)),
        "utmZone": ZONE,
        "latitudeBand": BAND,
        "gridSquare": SQUARE,
        "tileGeometry": _polygon(WEST_M),
        "tileDataGeometry": _polygon(WEST_M + chance.randint(0, 30_000)),  # the swath covers a part
        "dataCoveragePercentage": 100.0,
        "cloudyPixelPercentage": 0.0,
        "productName": sentinel2_product(day),
        "productPath": f"products/{day.year}/{day.month}/{day.day}/{sentinel2_product(day)}",
    }
    return f"{sentinel2_path(day)}/tileInfo.json", json.dumps(info).encode()


def sentinel2_scene(window_start: datetime, *, seed: int = 0) -> Mapping[str, bytes]:
    """Returns the other objects of the folder that are read."""
    day = window_of(window_start, "day").start
    chance = seeded_random(seed, "sentinel-2 metadata", day.isoformat())
    return {
        f"{sentinel2_path(day)}/metadata.xml": _metadata(day, chance.uniform(0, 60), chance.uniform(25, 60)).encode(),
        f"{sentinel2_path(day)}/preview.jpg": small_picture(chance),
    }


def _sensed(day: datetime) -> datetime:
    return day + timedelta(hours=17, minutes=21, seconds=30, milliseconds=283)


def _polygon(west: float) -> dict[str, Any]:
    east, south = WEST_M + SIDE_M, NORTH_M - SIDE_M
    ring = [[west, NORTH_M], [east, NORTH_M], [east, south], [west, south], [west, NORTH_M]]
    name = f"urn:ogc:def:crs:EPSG:8.8.1:{EPSG}"
    return {"type": "Polygon", "crs": {"type": "name", "properties": {"name": name}}, "coordinates": [ring]}


def _metadata(day: datetime, clouds: float, zenith: float) -> str:
    tile_id = f"S2B_OPER_MSI_L2A_TL_2BPS_{day:%Y%m%d}T213002_A040123_T{ZONE}{BAND}{SQUARE}_N05.11"
    sizes = "".join(
        f'<Size resolution="{size}"><NROWS>{SIDE_M // size}</NROWS><NCOLS>{SIDE_M // size}</NCOLS></Size>'
        f'<Geoposition resolution="{size}"><ULX>{WEST_M}</ULX><ULY>{NORTH_M}</ULY></Geoposition>'
        for size in (10, 20, 60)
    )
    return f"""<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<n1:Level-2A_Tile_ID xmlns:n1="https://psd-15.sentinel2.eo.esa.int/PSD/S2_PDI_Level-2A_Tile_Metadata.xsd">
  <n1:General_Info>
    <TILE_ID metadataLevel="Brief">{tile_id}</TILE_ID>
    <SENSING_TIME metadataLevel="Standard">{_sensed(day):%Y-%m-%dT%H:%M:%S.%f}Z</SENSING_TIME>
  </n1:General_Info>
  <n1:Geometric_Info>
    <Tile_Geocoding metadataLevel="Brief">
      <HORIZONTAL_CS_NAME>WGS84 / UTM zone {ZONE}N</HORIZONTAL_CS_NAME>
      <HORIZONTAL_CS_CODE>EPSG:{EPSG}</HORIZONTAL_CS_CODE>{sizes}
    </Tile_Geocoding>
    <Tile_Angles metadataLevel="Standard">
      <Mean_Sun_Angle>
        <ZENITH_ANGLE unit="deg">{zenith:.6f}</ZENITH_ANGLE><AZIMUTH_ANGLE unit="deg">160.5</AZIMUTH_ANGLE>
      </Mean_Sun_Angle>
      <Mean_Viewing_Incidence_Angle_List>
        <Mean_Viewing_Incidence_Angle bandId="0">
          <ZENITH_ANGLE unit="deg">7.25</ZENITH_ANGLE><AZIMUTH_ANGLE unit="deg">104.5</AZIMUTH_ANGLE>
        </Mean_Viewing_Incidence_Angle>
      </Mean_Viewing_Incidence_Angle_List>
    </Tile_Angles>
  </n1:Geometric_Info>
  <n1:Quality_Indicators_Info metadataLevel="Standard">
    <Image_Content_QI>
      <CLOUDY_PIXEL_PERCENTAGE>{clouds:.6f}</CLOUDY_PIXEL_PERCENTAGE><SNOW_ICE_PERCENTAGE>0.000000</SNOW_ICE_PERCENTAGE>
    </Image_Content_QI>
  </n1:Quality_Indicators_Info>
</n1:Level-2A_Tile_ID>
"""
