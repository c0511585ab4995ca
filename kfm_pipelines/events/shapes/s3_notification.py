"""S3 event notifications, version 2.x: `Records`, one per object.

One record that cannot be read refuses the whole message, so that a message is either recorded or dead-lettered.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events.contracts import check_contract, check_major_version, check_record_count
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.s3_objects import S3Object, change_of, check_event_name, s3_notice
from kfm_pipelines.events.timestamps import read_timestamp
from kfm_pipelines.text import quote_value


def matches(document: Mapping[str, object]) -> bool:
    return "Records" in document


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    records = document["Records"]
    check_record_count(records)
    for record in records if isinstance(records, list) else []:
        if isinstance(record, dict):
            # Before the contract, because another version or another kind of event has other fields.
            check_major_version("eventVersion", record.get("eventVersion"), supported=2)
            check_event_name(record.get("eventName"))
    check_contract("s3-notification-v2", document)
    return tuple(_notice(record) for record in records)


def _notice(record: Mapping[str, Any]) -> ObjectNotice:
    said = record["s3"]["object"]
    stored = S3Object(
        bucket=record["s3"]["bucket"]["name"],
        key=_decode_key(said["key"]),
        etag=said.get("eTag"),
        version_id=said.get("versionId"),
        size=said.get("size", 0),
        sequencer=said.get("sequencer"),
    )
    change = change_of(record["eventName"], stored.version_id)
    return s3_notice("s3-notification", change, stored, read_timestamp(record["eventTime"]))


def _decode_key(key: str) -> str:
    """S3 form-encodes keys once; decoding twice would turn the object `a%2Fb` into another one, `a/b`."""
    try:
        return unquote_plus(key, errors="strict")
    except UnicodeDecodeError:
        raise ContractBroken(f"object key {quote_value(key)} is not form-encoded UTF-8") from None
