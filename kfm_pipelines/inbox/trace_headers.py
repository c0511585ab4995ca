"""What senders tell of themselves beside the message: where in a trace they sent it, and when SNS took it."""

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.events.timestamps import read_timestamp
from kfm_pipelines.telemetry.traces.spans import TRACEPARENT, TraceContext

MAX_DELIVERY_TIME = timedelta(days=14)  # so long SQS keeps a message; what is told to be older is made up


@dataclass(frozen=True, slots=True)
class Sender:
    context: TraceContext | None = None
    announced_at: datetime | None = None


def sender_of(message: Message) -> Sender:
    """Attributes come as such by raw delivery; otherwise SNS puts them into the envelope around the message."""
    envelope = _envelope(message.body)
    said = message.attributes.get(TRACEPARENT) or _attribute(envelope, TRACEPARENT)
    return Sender(TraceContext.parse(said), _announced_at(envelope, message.sent_at))


def _announced_at(envelope: dict[str, Any], sent: datetime | None) -> datetime | None:
    told = envelope.get("Timestamp")
    if not isinstance(told, str) or sent is None:
        return None
    with suppress(ValueError):
        announced = read_timestamp(told)
        return announced if sent - MAX_DELIVERY_TIME < announced <= sent else None
    return None


def _attribute(envelope: dict[str, Any], name: str) -> str | None:
    attributes = envelope.get("MessageAttributes")
    inside = attributes.get(name) if isinstance(attributes, dict) else None
    value = inside.get("Value") if isinstance(inside, dict) else None
    return value if isinstance(value, str) else None


def _envelope(body: str) -> dict[str, Any]:
    """Empty for what is none. A body that cannot be read has been refused by those who read it for what it says."""
    if '"TopicArn"' not in body:
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
