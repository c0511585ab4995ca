"""S3 events by way of EventBridge: the same news as an S3 notification, in other words, with the key as it is."""

from collections.abc import Mapping
from typing import Any

from kfm_pipelines.errors import ShapeUnknown
from kfm_pipelines.events.contracts import check_contract, check_major_version
from kfm_pipelines.events.notice import Change, ObjectNotice
from kfm_pipelines.events.shapes.s3_objects import S3Object, change_of, s3_notice
from kfm_pipelines.events.timestamps import read_timestamp
from kfm_pipelines.text import quote_value

_KINDS = ("Object Created", "Object Deleted")


def matches(document: Mapping[str, object]) -> bool:
    return "detail-type" in document


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    _check_kind(document)
    check_contract("eventbridge-s3-v0", document)
    return (_notice(document, document["detail"]),)


def _check_kind(document: Mapping[str, Any]) -> None:
    # Before the contract, because another version or another kind of event has other fields.
    source, kind, detail = document.get("source"), document["detail-type"], document.get("detail")
    known = source == "aws.s3" and kind in _KINDS
    if isinstance(source, str) and isinstance(kind, str) and not known:
        raise ShapeUnknown(f"EventBridge event {quote_value(kind)} from {quote_value(source)} is not handled")
    check_major_version("version", document.get("version"), supported=0)
    check_major_version("detail.version", detail.get("version") if isinstance(detail, dict) else None, supported=0)


def _notice(document: Mapping[str, Any], detail: Mapping[str, Any]) -> ObjectNotice:
    said = detail["object"]
    stored = S3Object(
        bucket=detail["bucket"]["name"],
        key=said["key"],
        etag=said.get("etag"),
        version_id=said.get("version-id"),
        size=said.get("size", 0),
        sequencer=said.get("sequencer"),
    )
    change = _change(document["detail-type"], detail.get("deletion-type"), stored.version_id)
    return s3_notice("eventbridge", change, stored, read_timestamp(document["time"]))


def _change(kind: str, deletion: str | None, version_id: str | None) -> Change:
    if kind == "Object Created":
        return "created"
    # In the words of S3's own notifications, so that what a removal means is written once.
    marked = deletion == "Delete Marker Created"
    return change_of("ObjectRemoved:DeleteMarkerCreated" if marked else "ObjectRemoved:Delete", version_id)
