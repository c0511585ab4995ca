"""Public data feeds. Their messages name a place and a time but say nothing about the bytes there."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events.contracts import check_contract, check_major_version, check_record_count
from kfm_pipelines.events.identity import feed_identities
from kfm_pipelines.events.notice import ObjectNotice, check_folder_key, check_object_key, read_folder_uri
from kfm_pipelines.text import read_timestamp, read_utc

SENTINEL_1_BUCKET = "sentinel-s1-l1c"
SENTINEL_2_BUCKETS = {"MSIL1C": "sentinel-s2-l1c", "MSIL2A": "sentinel-s2-l2a"}

_SENTINEL_1_PRODUCT = re.compile(r"S1[A-Z]_")
_SENTINEL_2_PRODUCT = re.compile(r"S2[A-Z]_")


def read_nexrad(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    """Reads a Level II chunk from the filterable topic. Its DateTime has no offset and is UTC."""
    check_contract("nexrad-filterable", document)
    check_object_key(document["Key"])
    [identity] = feed_identities(document, 1)
    location = document["S3Bucket"], document["Key"]
    return (_feed_notice("nexrad", identity, location, read_utc(document["DateTime"])),)


def read_landsat(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    """Reads a Collection 2 scene. Its event time is the day of processing, so a reprocessed scene is newer."""
    product = document["landsat_product_id"]
    parts = product.split("_") if isinstance(product, str) else []
    if len(parts) == 7:
        check_major_version("landsat_product_id: collection", parts[5], supported=2)
    check_contract("landsat-c2", document)
    acquired, processed = _parse_day(parts[3]), _parse_day(parts[4])
    granule = acquired, acquired.replace(hour=23, minute=59, second=59)
    location = read_folder_uri("s3_location", document["s3_location"])
    [identity] = feed_identities(document, 1)
    return (_feed_notice("landsat-c2", identity, location, processed, granule),)


def is_sentinel_1(document: Mapping[str, object]) -> bool:
    return _is_product(document, "id", _SENTINEL_1_PRODUCT)


def read_sentinel_1(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    """Reads a product from the topic SentinelS1L1C, which is one folder."""
    check_contract("sentinel-1", document)
    [identity] = feed_identities(document, 1)
    started = read_utc(document["startTime"])
    location = _product_folder(SENTINEL_1_BUCKET, document["path"])
    return (_feed_notice("sentinel-1", identity, location, _ingestion_time(document, started), (started, None)),)


def is_sentinel_2(document: Mapping[str, object]) -> bool:
    return _is_product(document, "name", _SENTINEL_2_PRODUCT)


def read_sentinel_2(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    """Reads a product from the topic NewSentinel2Product: one notice per tile, or one for a product without tiles."""
    check_record_count(document.get("tiles"))
    check_contract("sentinel-2", document)
    tiles = document.get("tiles") or [document]
    identities = feed_identities(document, len(tiles))
    return tuple(_tile_notice(document, tile, identity) for tile, identity in zip(tiles, identities, strict=True))


def _tile_notice(product: Mapping[str, Any], tile: Mapping[str, Any], identity: str) -> ObjectNotice:
    sensed = read_utc(tile.get("timestamp") or product["timestamp"])
    location = _product_folder(SENTINEL_2_BUCKETS[product["name"].split("_")[1]], tile["path"])
    return _feed_notice("sentinel-2", identity, location, _ingestion_time(product, sensed), (sensed, None))


def _feed_notice(
    shape: str,
    identity: str,
    location: tuple[str, str],
    event_time: datetime,
    granule: tuple[datetime | None, datetime | None] = (None, None),
) -> ObjectNotice:
    """Builds a notice; a granule whose end is unknown ends with its window."""
    bucket, object_key = location
    granule_start, granule_end = granule
    return ObjectNotice(
        shape=shape,
        identity=identity,
        bucket=bucket,
        object_key=object_key,
        event_time=event_time,
        granule_start=granule_start,
        granule_end=granule_end,
    )


def _is_product(document: Mapping[str, object], field: str, pattern: re.Pattern[str]) -> bool:
    product = document.get(field)
    return "path" in document and isinstance(product, str) and bool(pattern.match(product))


def _parse_day(digits: str) -> datetime:
    try:
        return read_timestamp(f"{digits[:4]}-{digits[4:6]}-{digits[6:]}T00:00:00Z")
    except ValueError as error:
        raise ContractBroken(f"landsat_product_id: {error}") from None


def _product_folder(bucket: str, path: str) -> tuple[str, str]:
    """Adds the trailing slash, which feeds leave out."""
    key = path if path.endswith("/") else f"{path}/"
    check_folder_key(key)
    return bucket, key


def _ingestion_time(product: Mapping[str, str], sensed: datetime) -> datetime:
    """Returns when the product reached the bucket, by which a reprocessed one is newer; else the sensing time."""
    ingested = product.get("s3Ingestion") or product.get("sciHubIngestion")
    return read_utc(ingested) if ingested else sensed
