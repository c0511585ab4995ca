"""NEXRAD Level II chunks, as the filterable topic announces them. Their DateTime has no offset and is UTC."""

from collections.abc import Mapping
from typing import Any

from kfm_pipelines.events.contracts import check_contract
from kfm_pipelines.events.identity import feed_identities
from kfm_pipelines.events.locations import check_object_key
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.feeds import feed_notice
from kfm_pipelines.events.timestamps import read_utc


def matches(document: Mapping[str, object]) -> bool:
    return "S3Bucket" in document


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    check_contract("nexrad-filterable", document)
    check_object_key(document["Key"])
    [identity] = feed_identities(document, 1)
    where = document["S3Bucket"], document["Key"]
    return (feed_notice("nexrad", identity, where, read_utc(document["DateTime"])),)
