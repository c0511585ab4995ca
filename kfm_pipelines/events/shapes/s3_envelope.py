"""The KFM S3 envelope: an S3 event in our own words, the key as it is.

Its `idempotency_key` is not looked at: identity is computed here, so that a sender cannot choose somebody else's.
"""

from collections.abc import Mapping
from typing import Any

from kfm_pipelines.events.contracts import check_contract, check_major_version
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.s3_objects import S3Object, change_of, check_event_name, s3_notice
from kfm_pipelines.events.timestamps import read_timestamp


def matches(document: Mapping[str, object]) -> bool:
    source = document.get("source")
    return isinstance(source, str) and source.startswith("s3:")


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    # Before the contract, because another version or another kind of event has other fields.
    check_major_version("schema_version", document.get("schema_version"), supported=1)
    event_name = document["source"].removeprefix("s3:")
    check_event_name(event_name)
    check_contract("s3-envelope-v1", document)
    stored = S3Object(
        bucket=document["bucket"],
        key=document["key"],
        etag=document.get("etag"),
        version_id=document.get("version_id"),
        size=document.get("size", 0),
        sequencer=document.get("sequencer"),
    )
    change = change_of(event_name, stored.version_id)
    return (s3_notice("s3-envelope", change, stored, read_timestamp(document["event_time"])),)
