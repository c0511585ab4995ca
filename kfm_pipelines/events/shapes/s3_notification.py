"""S3 event notifications, version 2.x: `Records`, one per object.

One record that cannot be read refuses the whole message, so that a message is either recorded or dead-lettered.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from kfm_pipelines.errors import ContractBroken, ShapeUnknown
from kfm_pipelines.events.contracts import check_contract, check_major
from kfm_pipelines.events.identity import s3_object_identity, stated_version
from kfm_pipelines.events.locations import check_object_key
from kfm_pipelines.events.notice import ObjectNotice, plain_etag
from kfm_pipelines.events.quoting import quoted
from kfm_pipelines.events.timestamps import read_timestamp


def matches(document: Mapping[str, object]) -> bool:
    return "Records" in document


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    records = document["Records"]
    for record in records if isinstance(records, list) else []:
        if isinstance(record, dict):
            _check_kind(record)
    check_contract("s3-notification-v2", document)
    return tuple(_notice(record) for record in records)


def _check_kind(record: Mapping[str, object]) -> None:
    # Before the contract, because another version or another kind of event has other fields.
    check_major("eventVersion", record.get("eventVersion"), reads=2)
    name = record.get("eventName")
    if isinstance(name, str) and not name.startswith("ObjectCreated:"):
        raise ShapeUnknown(f"S3 event {quoted(name)} is not handled; only ObjectCreated events are")


def _notice(record: Mapping[str, Any]) -> ObjectNotice:
    bucket, stored = record["s3"]["bucket"]["name"], record["s3"]["object"]
    key = _decoded(stored["key"])
    etag, version_id = plain_etag(stored.get("eTag")), stated_version(stored.get("versionId"))
    size = int(stored["size"])
    return ObjectNotice(
        shape="s3-notification",
        identity=s3_object_identity(bucket, key, etag, version_id, size),
        bucket=bucket,
        object_key=key,
        etag=etag,
        version_id=version_id,
        size=size,
        sequencer=stored.get("sequencer") or None,
        event_time=read_timestamp(record["eventTime"]),
        dataset=None,
        granule_start=None,
        granule_end=None,
        priority="normal",
    )


def _decoded(key: str) -> str:
    """S3 form-encodes keys once; decoding twice would turn the object `a%2Fb` into another one, `a/b`."""
    try:
        decoded = unquote_plus(key, errors="strict")
    except UnicodeDecodeError:
        raise ContractBroken(f"object key {quoted(key)} is not form-encoded UTF-8") from None
    check_object_key(decoded)
    return decoded
