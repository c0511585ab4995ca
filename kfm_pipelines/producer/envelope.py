"""Builds FIFO envelopes. SQS deduplicates by the body, so the same event always gives the same bytes."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import rfc8785

from kfm_pipelines.aws.batches import Outgoing
from kfm_pipelines.declarations.words import EVENT_SOURCE
from kfm_pipelines.errors import MessageRefused, ProducerMistaken
from kfm_pipelines.events.identity import s3_object_identity
from kfm_pipelines.events.notice import normalise_etag
from kfm_pipelines.events.shapes.registry import normalise
from kfm_pipelines.producer.messages import s3_envelope
from kfm_pipelines.text import quote_value, write_timestamp

# The limits of the message contract.
MAX_EVENT_SOURCE_LENGTH = 200
GROUP_PATTERN = re.compile(r"[!-~]{1,128}")  # what SQS accepts
MAX_DEDUPE_KEY_LENGTH = 256

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORBIDDEN_CHARACTERS = re.compile("[\ufffe\uffff]")  # JSON allows them unescaped, SQS refuses them


@dataclass(frozen=True, slots=True)
class Envelope:
    event_id: str
    event_source: str
    event_time: datetime
    dedupe_key: str
    payload: Mapping[str, Any]
    body: str = field(repr=False)


def envelope(event_source: str, dedupe_key: str, event_time: datetime, payload: Mapping[str, Any]) -> Envelope:
    """Takes the time the event happened, not the current time, so that a replay gives the same envelope."""
    if not is_event_source(event_source):
        raise ProducerMistaken(
            f"event_source must be kfm.<domain>.<pipeline>, at most {MAX_EVENT_SOURCE_LENGTH} characters, "
            f"not {quote_value(event_source)}"
        )
    if not is_dedupe_key(dedupe_key):
        raise ProducerMistaken(
            f"dedupe_key must be 1 to {MAX_DEDUPE_KEY_LENGTH} printable characters, not {quote_value(dedupe_key)}"
        )
    fields: dict[str, Any] = {
        "event_id": event_id(event_source, dedupe_key, event_time),
        "event_source": event_source,
        "event_time": write_timestamp(_require_offset(event_time)),
        "dedupe_key": dedupe_key,
        "payload": payload,
    }
    return Envelope(fields["event_id"], event_source, event_time, dedupe_key, payload, _encode_body(fields))


def object_envelope(
    event_source: str,
    bucket: str,
    object_key: str,
    etag: str | None,
    size: int,
    version_id: str | None,
    event_time: datetime,
) -> Envelope:
    """The envelope of an uploaded object. Its dedupe_key is the object's identity, the same as in S3's own notice."""
    tag = normalise_etag(etag)
    identity = s3_object_identity(bucket, object_key, tag, version_id, size)
    inner_id = event_id(event_source, identity, event_time)
    payload = s3_envelope(bucket, object_key, tag, size, version_id, event_time, inner_id)
    return envelope(event_source, identity, event_time, payload)


def outgoing_message(event: Envelope, group: str | None = None, routing: Sequence[str] = ()) -> Outgoing:
    """`routing` names payload fields to repeat as message attributes, for subscription filters."""
    missing = [name for name in routing if not isinstance(event.payload.get(name), str)]
    if missing:
        raise ProducerMistaken(
            f"routing attributes must be text fields of the payload; {quote_value(missing[0])} is not one"
        )
    attributes = {"event_source": event.event_source} | {name: event.payload[name] for name in routing}
    return Outgoing(event.body, attributes, require_valid_group(group or event.event_source))


def require_valid_group(group: str) -> str:
    """Raises ProducerMistaken when SQS would refuse the message group."""
    if not GROUP_PATTERN.fullmatch(group):
        raise ProducerMistaken(
            f"a message group is 1 to 128 letters, digits or punctuation without spaces, not {quote_value(group)}"
        )
    return group


def event_id(event_source: str, dedupe_key: str, event_time: datetime) -> str:
    """A UUIDv7 with the event's time; its random bits are derived from source and dedupe_key."""
    milliseconds = (_require_offset(event_time) - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ProducerMistaken(f"event_time {event_time.isoformat()} is before 1970, which a UUIDv7 cannot express")
    digest = hashlib.sha256(rfc8785.dumps(["kfm-event-id-1", event_source, dedupe_key])).digest()
    bits = int.from_bytes(digest[:10], "big")
    first, second = bits >> 68, bits & ((1 << 62) - 1)
    return str(UUID(int=milliseconds << 80 | 7 << 76 | first << 64 | 0b10 << 62 | second))


def is_event_source(text: str) -> bool:
    return len(text) <= MAX_EVENT_SOURCE_LENGTH and re.fullmatch(EVENT_SOURCE, text) is not None


def is_dedupe_key(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_DEDUPE_KEY_LENGTH and value.isprintable()


def _require_offset(event_time: datetime) -> datetime:
    if event_time.tzinfo is None:
        raise ProducerMistaken(f"event_time {event_time.isoformat()} has no UTC offset")
    return event_time


def _encode_body(fields: Mapping[str, Any]) -> str:
    """Encodes canonical JSON and refuses what the pipeline would refuse to read."""
    if not isinstance(fields["payload"], Mapping):
        raise ProducerMistaken(f"payload must be an object, not {quote_value(fields['payload'])}")
    try:
        body = rfc8785.dumps({**fields, "payload": dict(fields["payload"])}).decode()
        normalise(body)
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise ProducerMistaken(f"payload cannot be written as canonical JSON: {error}") from None
    except MessageRefused as error:
        raise ProducerMistaken(f"the pipeline would refuse this message: {error}") from None
    if _FORBIDDEN_CHARACTERS.search(body):
        raise ProducerMistaken("payload contains U+FFFE or U+FFFF, which SQS refuses")
    return body
