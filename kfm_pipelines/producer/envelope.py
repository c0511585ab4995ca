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
from kfm_pipelines.declarations import EVENT_SOURCE
from kfm_pipelines.errors import MessageRefused, ProducerMistaken
from kfm_pipelines.events.identity import s3_object_identity
from kfm_pipelines.events.notice import plain_etag
from kfm_pipelines.events.shapes import normalise
from kfm_pipelines.events.timestamps import write_timestamp
from kfm_pipelines.producer.messages import s3_envelope
from kfm_pipelines.text import quoted

# As in the contract: what is sent must be read.
LONGEST_EVENT_SOURCE = 200
GROUP = re.compile(r"[!-~]{1,128}")  # letters, digits and punctuation: what SQS takes
LONGEST_DEDUPE_KEY = 256

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_IN_A_MESSAGE = re.compile("[\ufffe\uffff]")  # all that JSON allows unescaped and SQS does not


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
        "event_time": _written(event_time),
        "dedupe_key": dedupe_key,
        "payload": payload,
    }
    return Envelope(said["event_id"], event_source, event_time, dedupe_key, payload, _body(said))


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
    tag = plain_etag(etag)
    identity = s3_object_identity(bucket, object_key, tag, version_id, size)
    known_as = event_id(event_source, identity, event_time)
    payload = s3_envelope(bucket, object_key, tag, size, version_id, event_time, known_as)
    return envelope(event_source, identity, event_time, payload)


def outgoing(event: Envelope, group: str | None = None, routing: Sequence[str] = ()) -> Outgoing:
    """The message of an envelope. `routing` names fields of the payload to repeat as attributes, for filters."""
    unsaid = [name for name in routing if not isinstance(event.payload.get(name), str)]
    if unsaid:
        raise ProducerMistaken(f"an attribute repeats what the payload says as text; {quoted(unsaid[0])} is not there")
    attributes = {"event_source": event.event_source} | {name: event.payload[name] for name in routing}
    return Outgoing(event.body, attributes, checked_group(group or event.event_source))


def checked_group(group: str) -> str:
    """What SQS keeps in order; by default a pipeline, so that one that is stuck holds up no other."""
    if not GROUP.fullmatch(group):
        raise ProducerMistaken(
            f"a message group is 1 to 128 letters, digits or punctuation without spaces, not {quoted(group)}"
        )
    return group


def event_id(event_source: str, dedupe_key: str, event_time: datetime) -> str:
    """A UUIDv7 whose time is the event's and whose random bits come from what the event is."""
    milliseconds = (_instant(event_time) - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ProducerMistaken(f"event_time {event_time.isoformat()} is before 1970, which a UUIDv7 cannot say")
    digest = hashlib.sha256(rfc8785.dumps(["kfm-event-id-1", event_source, dedupe_key])).digest()
    bits = int.from_bytes(digest[:10], "big")
    first, second = bits >> 68, bits & ((1 << 62) - 1)
    return str(UUID(int=milliseconds << 80 | 7 << 76 | first << 64 | 0b10 << 62 | second))


def is_event_source(text: str) -> bool:
    return len(text) <= LONGEST_EVENT_SOURCE and re.fullmatch(EVENT_SOURCE, text) is not None


def _check_source(event_source: str) -> None:
    if not is_event_source(event_source):
        raise ProducerMistaken(
            f"event_source must be kfm.<domain>.<pipeline>, at most {LONGEST_EVENT_SOURCE} characters, "
            f"not {quoted(event_source)}"
        )


def _check_dedupe_key(dedupe_key: str) -> None:
    if not dedupe_key or len(dedupe_key) > LONGEST_DEDUPE_KEY or not dedupe_key.isprintable():
        raise ProducerMistaken(
            f"dedupe_key must be 1 to {LONGEST_DEDUPE_KEY} printable characters, not {quoted(dedupe_key)}"
        )


def _written(event_time: datetime) -> str:
    return write_timestamp(_instant(event_time))


def _instant(event_time: datetime) -> datetime:
    if event_time.tzinfo is None:
        raise ProducerMistaken(f"event_time {event_time.isoformat()} has no offset, so it names no instant")
    return event_time


def _body(fields: Mapping[str, Any]) -> str:
    """Canonical JSON that the pipeline will read: what its reader refuses is refused here already."""
    if not isinstance(fields["payload"], Mapping):
        raise ProducerMistaken(f"payload must be an object, not {quoted(fields['payload'])}")
    try:
        body = rfc8785.dumps({**fields, "payload": dict(fields["payload"])}).decode()
        normalise(body)
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise ProducerMistaken(f"payload cannot be written as canonical JSON: {error}") from None
    except MessageRefused as error:
        raise ProducerMistaken(f"the pipeline would not read this: {error}") from None
    if _NOT_IN_A_MESSAGE.search(body):
        raise ProducerMistaken("payload holds U+FFFE or U+FFFF, which SQS does not carry")
    return body
