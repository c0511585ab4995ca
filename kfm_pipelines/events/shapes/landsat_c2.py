"""Landsat Collection 2 scenes: a product id and the folder it is in.

The message has no time of its own; the id has the days of acquisition and of processing. The first is what the scene
covers, the second stands for the time of the event, so that a reprocessed scene is newer than the one before.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events.contracts import check_contract, check_major_version
from kfm_pipelines.events.identity import feed_identities
from kfm_pipelines.events.locations import read_folder_uri
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.feeds import feed_notice
from kfm_pipelines.events.timestamps import read_timestamp


def matches(document: Mapping[str, object]) -> bool:
    return "landsat_product_id" in document


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    product = document["landsat_product_id"]
    parts = product.split("_") if isinstance(product, str) else []
    if len(parts) == 7:
        check_major_version("landsat_product_id: collection", parts[5], supported=2)
    check_contract("landsat-c2", document)
    acquired, processed = _parse_day(parts[3]), _parse_day(parts[4])
    granule = acquired, acquired.replace(hour=23, minute=59, second=59)
    where = read_folder_uri("s3_location", document["s3_location"])
    [identity] = feed_identities(document, 1)
    return (feed_notice("landsat-c2", identity, where, processed, granule),)


def _parse_day(digits: str) -> datetime:
    try:
        return read_timestamp(f"{digits[:4]}-{digits[4:6]}-{digits[6:]}T00:00:00Z")
    except ValueError as error:
        raise ContractBroken(f"landsat_product_id: {error}") from None
