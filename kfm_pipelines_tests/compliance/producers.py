"""Producers as teams write them: ours, and one for every way to get it wrong."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import rfc8785

from kfm_pipelines.events.fifo import envelope, outgoing
from kfm_pipelines.messaging.batches import Outgoing

SOURCE = "kfm.remote-sensing.landsat-refresh"


def ours(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return outgoing(envelope(SOURCE, dedupe_key, event_time, payload), routing=["collection"])


def _edited(message: Outgoing, **changes: Any) -> Outgoing:
    """The message with these fields of the body changed; None takes one out."""
    document = {**json.loads(message.body), **changes}
    return replace(message, body=rfc8785.dumps({k: v for k, v in document.items() if v is not None}).decode())


def random_event_id(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    message = ours(dedupe_key, payload, event_time)
    known_as = json.loads(message.body)["event_id"]
    return _edited(message, event_id=known_as[:-8] + uuid4().hex[:8])


def event_id_of_version_4(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return _edited(ours(dedupe_key, payload, event_time), event_id="123e4567-e89b-42d3-a456-426614174000")


def time_of_sending(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    message = ours(dedupe_key, payload, event_time)
    return _edited(message, event_time=f"2025-12-05T00:00:00.{uuid4().int % 1000:03}Z")


def local_time(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return _edited(ours(dedupe_key, payload, event_time), event_time=event_time.isoformat())


def no_dedupe_key(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return _edited(ours(dedupe_key, payload, event_time), dedupe_key=None)


def foreign_source(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return _edited(ours(dedupe_key, payload, event_time), event_source="landsat")


def payload_forgotten(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return _edited(ours(dedupe_key, payload, event_time), payload={})


def not_json(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return replace(ours(dedupe_key, payload, event_time), body=f"landsat {dedupe_key}")


def spaces(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    message = ours(dedupe_key, payload, event_time)
    return replace(message, body=json.dumps(json.loads(message.body), sort_keys=True))


def unsorted_keys(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    message = ours(dedupe_key, payload, event_time)
    document = {**json.loads(message.body), "payload": payload}
    return replace(message, body=json.dumps(document, separators=(",", ":")))


def one_key_for_all(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return ours("landsat", payload, event_time)


def uniqueness_in_attributes(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    body = rfc8785.dumps({"collection": "landsat", "tile": "p32r29"}).decode()
    return Outgoing(body, {"unique_key": dedupe_key}, "landsat")


def attribute_unsaid(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    message = ours(dedupe_key, payload, event_time)
    scene = hashlib.sha256(dedupe_key.encode()).hexdigest()
    return replace(message, attributes={**message.attributes, "scene": scene})


def traced(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    """Good: a trace differs with every send and identifies no event."""
    message = ours(dedupe_key, payload, event_time)
    return replace(message, attributes={**message.attributes, "traceparent": uuid4().hex})


def group_with_spaces(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return replace(ours(dedupe_key, payload, event_time), group="remote sensing")


def group_at_random(dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing:
    return replace(ours(dedupe_key, payload, event_time), group=uuid4().hex)
