"""Sentinel-2 products, as the topic NewSentinel2Product announces them: every tile of a product is one event.

Without tiles the product's own folder is. A tile belongs to the window it starts in.
"""

import re
from collections.abc import Mapping
from typing import Any

from kfm_pipelines.events.contracts import check_contract, check_record_count
from kfm_pipelines.events.identity import feed_identities
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.feeds import feed_notice, ingestion_time, product_folder
from kfm_pipelines.events.timestamps import read_utc

BUCKETS = {"MSIL1C": "sentinel-s2-l1c", "MSIL2A": "sentinel-s2-l2a"}

_PRODUCT = re.compile(r"S2[A-Z]_")


def matches(document: Mapping[str, object]) -> bool:
    product = document.get("name")
    return "path" in document and isinstance(product, str) and bool(_PRODUCT.match(product))


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    check_record_count(document.get("tiles"))
    check_contract("sentinel-2", document)
    places = document.get("tiles") or [document]
    identities = feed_identities(document, len(places))
    return tuple(_notice(document, place, identity) for place, identity in zip(places, identities, strict=True))


def _notice(product: Mapping[str, Any], place: Mapping[str, Any], identity: str) -> ObjectNotice:
    sensed = read_utc(place.get("timestamp") or product["timestamp"])
    where = product_folder(BUCKETS[product["name"].split("_")[1]], place["path"])
    return feed_notice("sentinel-2", identity, where, ingestion_time(product, sensed), (sensed, None))
