"""The FIFO body envelope: source, time, dedupe key and a payload.

A payload of a known object shape is read as that shape; any other is resolved by the dataset that listens to its
source. The identity comes from the envelope, hashed under the producer's own name. Only a dedupe key that equals the
identity of the object inside is taken as it is: the event is then the same as any other announcement of that object.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kfm_pipelines.errors import ShapeUnknown
from kfm_pipelines.events.contracts import check_contract, check_major_version
from kfm_pipelines.events.identity import dedupe_key_identities, feed_identities
from kfm_pipelines.events.notice import Notice, ObjectNotice, PayloadNotice
from kfm_pipelines.text import read_timestamp

ReadPayload = Callable[[Mapping[str, Any]], tuple[ObjectNotice, ...] | None]


def matches(document: Mapping[str, object]) -> bool:
    return "event_source" in document or ("event_id" in document and "payload" in document)


def read(document: Mapping[str, Any], read_payload: ReadPayload) -> tuple[Notice, ...]:
    check_major_version("schema_version", document.get("schema_version"), supported=1)
    check_contract("fifo-envelope-v1", document)
    payload = document["payload"]
    notices = read_payload(payload)
    if notices is not None:
        return tuple(
            replace(
                notice,
                shape="fifo-envelope",
                identity=notice.identity if notice.identity == document.get("dedupe_key") else identity,
                priority=document.get("priority", notice.priority),
            )
            for notice, identity in zip(notices, _identities(document, len(notices)), strict=True)
        )
    if matches(payload):
        raise ShapeUnknown("FIFO envelope contains another FIFO envelope; only one is unwrapped")
    return (_payload_notice(document, payload),)


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
