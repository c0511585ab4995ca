"""Sentinel-1 products, as the topic SentinelS1L1C announces them: a folder in the bucket sentinel-s1-l1c.

A scene belongs to the window it starts in: some seconds of it may reach into the next.
"""

import re
from collections.abc import Mapping
from typing import Any

from kfm_pipelines.events.contracts import check_contract
from kfm_pipelines.events.identity import feed_identities
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.feeds import feed_notice, ingestion_time, product_folder
from kfm_pipelines.events.timestamps import read_utc

BUCKET = "sentinel-s1-l1c"

_PRODUCT = re.compile(r"S1[A-Z]_")


def matches(document: Mapping[str, object]) -> bool:
    product = document.get("id")
    return "path" in document and isinstance(product, str) and bool(_PRODUCT.match(product))


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    check_contract("sentinel-1", document)
    [identity] = feed_identities(document, 1)
    started = read_utc(document["startTime"])
    where = product_folder(BUCKET, document["path"])
    return (feed_notice("sentinel-1", identity, where, ingestion_time(document, started), (started, None)),)
