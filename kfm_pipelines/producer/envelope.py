"""The envelope of a message to a FIFO queue, written so that the same event is the same bytes, always and everywhere.

SQS tells messages on a FIFO queue apart by the SHA-256 of the body and nothing else. So everything that makes an event
this event is in the body, the body is canonical JSON (RFC 8785), and nothing in it depends on when or by whom it is
sent. Belongs here: what is sent. Does not: sending it.
"""

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
from kfm_pipelines.events.timestamps import write_timestamp
from kfm_pipelines.producer.messages import s3_envelope
from kfm_pipelines.text import quote_value

# As in the contract: what is sent must be read.
MAX_EVENT_SOURCE_LENGTH = 200
GROUP_PATTERN = re.compile(r"[!-~]{1,128}")  # letters, digits and punctuation: what SQS takes
MAX_DEDUPE_KEY_LENGTH = 256

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORBIDDEN_CHARACTERS = re.compile("[\ufffe\uffff]")  # all that JSON allows unescaped and SQS does not


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event, and the bytes it is sent as."""

    event_id: str
    event_source: str
    event_time: datetime
    dedupe_key: str
    payload: Mapping[str, Any]
    body: str = field(repr=False)


def envelope(event_source: str, dedupe_key: str, event_time: datetime, payload: Mapping[str, Any]) -> Envelope:
    """The envelope of one event. `event_time` is when it happened, so that a replay gives the same; not now."""
    _check_source(event_source)
    _check_dedupe_key(dedupe_key)
    said: dict[str, Any] = {
        "event_id": event_id(event_source, dedupe_key, event_time),
        "event_source": event_source,
        "event_time": _format_event_time(event_time),
        "dedupe_key": dedupe_key,
        "payload": payload,
    }
    return Envelope(said["event_id"], event_source, event_time, dedupe_key, payload, _encode_body(said))


def object_envelope(
    event_source: str,
    bucket: str,
    object_key: str,
    etag: str | None,
    size: int,
    version_id: str | None,
    event_time: datetime,
) -> Envelope:
    """The envelope of an uploaded object. Its key is the object's identity, which S3's own notice has too."""
    tag = normalise_etag(etag)
    identity = s3_object_identity(bucket, object_key, tag, version_id, size)
    known_as = event_id(event_source, identity, event_time)
    payload = s3_envelope(bucket, object_key, tag, size, version_id, event_time, known_as)
    return envelope(event_source, identity, event_time, payload)


def outgoing_message(event: Envelope, group: str | None = None, routing: Sequence[str] = ()) -> Outgoing:
    """The message of an envelope. `routing` names fields of the payload to repeat as attributes, for filters."""
    unsaid = [name for name in routing if not isinstance(event.payload.get(name), str)]
    if unsaid:
        raise ProducerMistaken(
            f"an attribute repeats what the payload says as text; {quote_value(unsaid[0])} is not there"
        )
    attributes = {"event_source": event.event_source} | {name: event.payload[name] for name in routing}
    return Outgoing(event.body, attributes, require_valid_group(group or event.event_source))


def require_valid_group(group: str) -> str:
    """What SQS keeps in order; by default a pipeline, so that one that is stuck holds up no other."""
    if not GROUP_PATTERN.fullmatch(group):
        raise ProducerMistaken(
            f"a message group is 1 to 128 letters, digits or punctuation without spaces, not {quote_value(group)}"
        )
    return group


def event_id(event_source: str, dedupe_key: str, event_time: datetime) -> str:
    """A UUIDv7 whose time is the event's and whose random bits come from what the event is."""
    milliseconds = (_require_offset(event_time) - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ProducerMistaken(f"event_time {event_time.isoformat()} is before 1970, which a UUIDv7 cannot say")
    digest = hashlib.sha256(rfc8785.dumps(["kfm-event-id-1", event_source, dedupe_key])).digest()
    bits = int.from_bytes(digest[:10], "big")
    first, second = bits >> 68, bits & ((1 << 62) - 1)
    return str(UUID(int=milliseconds << 80 | 7 << 76 | first << 64 | 0b10 << 62 | second))


def is_event_source(text: str) -> bool:
    return len(text) <= MAX_EVENT_SOURCE_LENGTH and re.fullmatch(EVENT_SOURCE, text) is not None


def _check_source(event_source: str) -> None:
    if not is_event_source(event_source):
        raise ProducerMistaken(
            f"event_source must be kfm.<domain>.<pipeline>, at most {MAX_EVENT_SOURCE_LENGTH} characters, "
            f"not {quote_value(event_source)}"
        )


def _check_dedupe_key(dedupe_key: str) -> None:
    if not dedupe_key or len(dedupe_key) > MAX_DEDUPE_KEY_LENGTH or not dedupe_key.isprintable():
        raise ProducerMistaken(
            f"dedupe_key must be 1 to {MAX_DEDUPE_KEY_LENGTH} printable characters, not {quote_value(dedupe_key)}"
        )


def _format_event_time(event_time: datetime) -> str:
    return write_timestamp(_require_offset(event_time))


def _require_offset(event_time: datetime) -> datetime:
    if event_time.tzinfo is None:
        raise ProducerMistaken(f"event_time {event_time.isoformat()} has no offset, so it names no instant")
    return event_time


def _encode_body(fields: Mapping[str, Any]) -> str:
    """Canonical JSON that the pipeline will read: what its reader refuses is refused here already."""
    if not isinstance(fields["payload"], Mapping):
        raise ProducerMistaken(f"payload must be an object, not {quote_value(fields['payload'])}")
    try:
        body = rfc8785.dumps({**fields, "payload": dict(fields["payload"])}).decode()
        normalise(body)
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise ProducerMistaken(f"payload cannot be written as canonical JSON: {error}") from None
    except MessageRefused as error:
        raise ProducerMistaken(f"the pipeline would not read this: {error}") from None
    if _FORBIDDEN_CHARACTERS.search(body):
        raise ProducerMistaken("payload holds U+FFFE or U+FFFF, which SQS does not carry")
    return body
