"""S3 object events: direct notifications, EventBridge events and the KFM S3 envelope, all read into the same notice."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus

from kfm_pipelines.errors import ContractBroken, ShapeUnknown
from kfm_pipelines.events.contracts import check_contract, check_major_version, check_record_count
from kfm_pipelines.events.identity import normalise_version_id, s3_object_identity, s3_removal_identity
from kfm_pipelines.events.notice import Change, ObjectNotice, check_object_key, normalise_etag
from kfm_pipelines.text import quote_value, read_timestamp

_CREATED = "ObjectCreated:"
_DELETE_MARKERS = ("ObjectRemoved:DeleteMarkerCreated", "LifecycleExpiration:DeleteMarkerCreated")
_REMOVED = ("ObjectRemoved:Delete", "LifecycleExpiration:Delete")
_EVENTBRIDGE_KINDS = ("Object Created", "Object Deleted")


@dataclass(frozen=True, slots=True)
class S3Object:
    """An object as S3 names it, with its key decoded. A removal has no size; 0 stands in for it."""

    bucket: str
    key: str
    etag: str | None
    version_id: str | None
    size: int
    sequencer: str | None


def s3_notice(shape: str, change: Change, s3_object: S3Object, event_time: datetime) -> ObjectNotice:
    """Builds the notice. A removal has no content, even if S3 sends the ETag and size of its delete marker."""
    check_object_key(s3_object.key)
    version_id, sequencer = normalise_version_id(s3_object.version_id), s3_object.sequencer or None
    etag, size = (normalise_etag(s3_object.etag), int(s3_object.size)) if change == "created" else (None, None)
    identity = (
        s3_removal_identity(s3_object.bucket, s3_object.key, version_id, sequencer, event_time)
        if size is None
        else s3_object_identity(s3_object.bucket, s3_object.key, etag, version_id, size)
    )
    return ObjectNotice(
        shape=shape,
        identity=identity,
        bucket=s3_object.bucket,
        object_key=s3_object.key,
        etag=etag,
        version_id=version_id,
        size=size,
        sequencer=sequencer,
        event_time=event_time,
        change=change,
    )


def read_notification(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    """Reads version 2.x. One unreadable record refuses the message, which is either recorded or dead-lettered."""
    records = document["Records"]
    check_record_count(records)
    for record in records if isinstance(records, list) else []:
        if isinstance(record, dict):
            # Before the contract, because other versions and kinds of event have other fields.
            check_major_version("eventVersion", record.get("eventVersion"), supported=2)
            _check_event_name(record.get("eventName"))
    check_contract("s3-notification-v2", document)
    return tuple(_notification_notice(record) for record in records)


def read_eventbridge(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    _check_eventbridge_kind(document)
    check_contract("eventbridge-s3-v0", document)
    detail = document["detail"]
    stored = _s3_object(detail["bucket"]["name"], detail["object"], etag="etag", version_id="version-id")
    change = _eventbridge_change(document["detail-type"], detail.get("deletion-type"), stored.version_id)
    return (s3_notice("eventbridge", change, stored, read_timestamp(document["time"])),)


def is_envelope(document: Mapping[str, object]) -> bool:
    source = document.get("source")
    return isinstance(source, str) and source.startswith("s3:")


def read_envelope(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    """Ignores `idempotency_key`: the identity is computed here, so that a sender cannot choose another event's."""
    # Before the contract, because other versions and kinds of event have other fields.
    check_major_version("schema_version", document.get("schema_version"), supported=1)
    event_name = document["source"].removeprefix("s3:")
    _check_event_name(event_name)
    check_contract("s3-envelope-v1", document)
    stored = _s3_object(document["bucket"], document, etag="etag", version_id="version_id")
    change = _change_of(event_name, stored.version_id)
    return (s3_notice("s3-envelope", change, stored, read_timestamp(document["event_time"])),)


def is_test_event(document: Mapping[str, object]) -> bool:
    return document.get("Event") == "s3:TestEvent"


def read_test_event(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    """S3 sends it once when a bucket's notifications are configured. It announces no object."""
    check_contract("s3-test-event", document)
    return ()


def _notification_notice(record: Mapping[str, Any]) -> ObjectNotice:
    bucket, fields = record["s3"]["bucket"]["name"], dict(record["s3"]["object"])
    try:
        # S3 form-encodes keys once; decoding twice would turn the object `a%2Fb` into another one, `a/b`.
        fields["key"] = unquote_plus(fields["key"], errors="strict")
    except UnicodeDecodeError:
        raise ContractBroken(f"object key {quote_value(fields['key'])} is not form-encoded UTF-8") from None
    stored = _s3_object(bucket, fields, etag="eTag", version_id="versionId")
    change = _change_of(record["eventName"], stored.version_id)
    return s3_notice("s3-notification", change, stored, read_timestamp(record["eventTime"]))


def _s3_object(bucket: str, fields: Mapping[str, Any], *, etag: str, version_id: str) -> S3Object:
    """Reads the fields of an object, two of which are spelled differently in each shape."""
    return S3Object(
        bucket=bucket,
        key=fields["key"],
        etag=fields.get(etag),
        version_id=fields.get(version_id),
        size=fields.get("size", 0),
        sequencer=fields.get("sequencer"),
    )


def _check_event_name(event_name: object) -> None:
    """Refuses other kinds of S3 event by name, before their fields are reported as broken."""
    if (
        isinstance(event_name, str)
        and not event_name.startswith(_CREATED)
        and event_name not in _DELETE_MARKERS + _REMOVED
    ):
        raise ShapeUnknown(f"S3 event {quote_value(event_name)} is not handled; created and removed objects are")


def _change_of(event_name: str, version_id: str | None) -> Change:
    """Removing a named version takes that version out of history; any other removal deletes the object."""
    if event_name.startswith(_CREATED):
        return "created"
    return "purged" if event_name in _REMOVED and normalise_version_id(version_id) else "deleted"


def _check_eventbridge_kind(document: Mapping[str, Any]) -> None:
    # Before the contract, because other versions and kinds of event have other fields.
    source, kind, detail = document.get("source"), document["detail-type"], document.get("detail")
    known = source == "aws.s3" and kind in _EVENTBRIDGE_KINDS
    if isinstance(source, str) and isinstance(kind, str) and not known:
        raise ShapeUnknown(f"EventBridge event {quote_value(kind)} from {quote_value(source)} is not handled")
    check_major_version("version", document.get("version"), supported=0)
    check_major_version("detail.version", detail.get("version") if isinstance(detail, dict) else None, supported=0)


def _eventbridge_change(kind: str, deletion: str | None, version_id: str | None) -> Change:
    if kind == "Object Created":
        return "created"
    # Translated to a notification's event name, so that the meaning of a removal is defined once.
    marked = deletion == "Delete Marker Created"
    return _change_of("ObjectRemoved:DeleteMarkerCreated" if marked else "ObjectRemoved:Delete", version_id)
