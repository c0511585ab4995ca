"""What the messages of providers' feeds have in common: a place and a time, and nothing about the bytes there.

Belongs here: the notice such a message ends in, and its parts. Does not: how a feed is read.
"""

from collections.abc import Mapping
from datetime import datetime

from kfm_pipelines.events.locations import check_folder_key
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.timestamps import read_utc


def feed_notice(
    shape: str,
    identity: str,
    location: tuple[str, str],
    event_time: datetime,
    granule: tuple[datetime, datetime | None] | None = None,
) -> ObjectNotice:
    """The granule is what the data covers; a feed that knows only its start leaves the end to the window."""
    bucket, object_key = location
    granule_start, granule_end = granule or (None, None)
    return ObjectNotice(
        shape=shape,
        identity=identity,
        bucket=bucket,
        object_key=object_key,
        event_time=event_time,
        granule_start=granule_start,
        granule_end=granule_end,
    )


def product_folder(bucket: str, path: str) -> tuple[str, str]:
    """A product's folder, which feeds write without the trailing slash."""
    key = path if path.endswith("/") else f"{path}/"
    check_folder_key(key)
    return bucket, key


def ingestion_time(product: Mapping[str, str], sensed: datetime) -> datetime:
    """When the product reached the bucket: what a reprocessed one is newer by. The sensing time if nobody says."""
    said = product.get("s3Ingestion") or product.get("sciHubIngestion")
    return read_utc(said) if said else sensed
