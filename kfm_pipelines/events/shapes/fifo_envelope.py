"""The FIFO body envelope: who says it, when, under which dedupe key, and a payload.

A payload that is a message of another shape is read by that shape; any other is for a dataset to make sense of. The
identity is the envelope's, unless its dedupe key is the very identity of the object inside: then the event is one with
every other announcement of that object. Anything else a producer chooses is hashed under its own name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kfm_pipelines.errors import ShapeUnknown
from kfm_pipelines.events.contracts import check_contract, check_major_version
from kfm_pipelines.events.identity import dedupe_key_identities, feed_identities
from kfm_pipelines.events.notice import Notice, ObjectNotice, PayloadNotice
from kfm_pipelines.events.shapes.registry import shape_of
from kfm_pipelines.events.timestamps import read_timestamp


def matches(document: Mapping[str, object]) -> bool:
    return "event_source" in document or ("event_id" in document and "payload" in document)


def read(document: Mapping[str, Any]) -> tuple[Notice, ...]:
    check_major_version("schema_version", document.get("schema_version"), supported=1)
    check_contract("fifo-envelope-v1", document)
    payload = document["payload"]
    if shape := shape_of(payload):
        return _object_notices(document, shape.read(payload))
    if matches(payload):
        raise ShapeUnknown("FIFO envelope holds another FIFO envelope; one is read, not two")
    return (_payload_notice(document, payload),)


def _object_notices(document: Mapping[str, Any], notices: Sequence[ObjectNotice]) -> tuple[ObjectNotice, ...]:
    own = _identities(document, len(notices))
    return tuple(
        replace(
            notice,
            shape="fifo-envelope",
            identity=notice.identity if notice.identity == document.get("dedupe_key") else identity,
            priority=document.get("priority", notice.priority),
        )
        for notice, identity in zip(notices, own, strict=True)
    )


def _payload_notice(document: Mapping[str, Any], payload: Mapping[str, object]) -> PayloadNotice:
    [identity] = _identities(document, 1)
    return PayloadNotice(
        shape="fifo-envelope",
        identity=identity,
        event_source=document["event_source"],
        event_time=read_timestamp(document["event_time"]),
        priority=document.get("priority", "normal"),
        payload={
            name: value
            for name, value in payload.items()
            if isinstance(value, str | int) and not isinstance(value, bool)
        },
    )


def _identities(document: Mapping[str, Any], count: int) -> list[str]:
    dedupe_key = document.get("dedupe_key")
    if dedupe_key is None:
        return feed_identities(document, count)
    return dedupe_key_identities(document["event_source"], dedupe_key, count)
