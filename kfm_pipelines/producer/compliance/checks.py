"""Checks whether a producer is fit for a FIFO queue with content-based deduplication.

A team writes one function that turns an event into the message it would send, and runs every check against it:

    @pytest.mark.parametrize("check", checks.CHECKS)
    def test_our_producer(check: checks.Check) -> None:
        check(our_produce)

`live.live_checks(queue_url)` are checks against a real queue. A check returns nothing or raises a `Violation`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import rfc8785

from kfm_pipelines.aws.batches import Outgoing
from kfm_pipelines.errors import BodyUnreadable
from kfm_pipelines.events.body import read_body
from kfm_pipelines.producer.envelope import GROUP_PATTERN, MAX_DEDUPE_KEY_LENGTH, is_dedupe_key, is_event_source
from kfm_pipelines.text import quote_value, read_timestamp


class Produce(Protocol):
    """Returns the message a team would send for an event. Must not send it."""

    def __call__(self, dedupe_key: str, payload: Mapping[str, Any], event_time: datetime) -> Outgoing: ...


Check = Callable[[Produce], None]


class Violation(AssertionError):
    """Why the producer must not send to a FIFO queue: what was expected and what came."""


class EnvelopeBroken(Violation):
    """The body is not a valid envelope."""


class BytesNotCanonical(Violation):
    """The body is not canonical JSON, so another library would encode the same event differently."""


class BytesNotRepeatable(Violation):
    """The same event gives different bytes, so a replay is delivered again."""


class BodyNotUnique(Violation):
    """Another event gives the same bytes, so SQS drops it."""


class AttributeNotInBody(Violation):
    """An attribute identifies the event by a value missing from the body; SQS ignores attributes."""


class GroupInvalid(Violation):
    """SQS would refuse the message group, or it changes between two sends of one event."""


DEDUPE_KEY = "landsat-2025-12-04T00:00Z"
OTHER_KEY = "landsat-2025-12-04T00:05Z"
PAYLOAD: Mapping[str, Any] = {"tile": "p32r29", "collection": "landsat", "cloud": {"max": 0.25, "min": 0}}
EVENT_TIME = datetime(2025, 12, 4, tzinfo=UTC)


def body_hash(message: Outgoing) -> str:
    """SQS deduplicates by this hash."""
    return hashlib.sha256(message.body.encode()).hexdigest()


def envelope_keeps_the_contract(produce: Produce) -> None:
    """The body has the five required fields, each well-formed."""
    body = produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME).body
    try:
        document = read_body(body)
    except BodyUnreadable as error:
        raise EnvelopeBroken(f"the pipeline must be able to read the body: {error}") from None
    if not isinstance(document, dict):
        raise EnvelopeBroken(f"the body must be a JSON object, not {quote_value(document)}")
    for field, (expected, holds) in _FIELDS.items():
        if field not in document:
            raise EnvelopeBroken(f"the body must have {field}, {expected}; its fields are {', '.join(document)}")
        if not holds(document[field]):
            raise EnvelopeBroken(f"{field} must be {expected}, not {quote_value(document[field])}")


def bytes_are_canonical(produce: Produce) -> None:
    """The body is RFC 8785 JSON: keys sorted, no spaces, numbers in one form."""
    body = produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME).body
    try:
        expected = rfc8785.dumps(json.loads(body)).decode()
    except ValueError as error:
        raise BytesNotCanonical(f"the body must be JSON that RFC 8785 can write: {error}") from None
    if body != expected:
        found, wanted = _first_difference(body, expected)
        raise BytesNotCanonical(f"the body must be canonical JSON (RFC 8785), {wanted} where it has {found}")


def same_event_gives_the_same_bytes(produce: Produce) -> None:
    """A replay has the same body, whatever the order of its payload and the offset of its time."""
    central = EVENT_TIME.astimezone(_CENTRAL_TIME)
    first = produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME)
    for what, again in {
        "sent again": produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME),
        "with its payload in another order": produce(DEDUPE_KEY, _reorder(PAYLOAD), EVENT_TIME),
        "with its time at another offset": produce(DEDUPE_KEY, PAYLOAD, central),
    }.items():
        if body_hash(again) != body_hash(first):
            before, after = _first_difference(first.body, again.body)
            raise BytesNotRepeatable(f"the same event {what} must give the same body; {before} became {after}")


def other_key_gives_another_hash(produce: Produce) -> None:
    """Events that differ only in dedupe_key have different bodies."""
    first, other = (produce(key, PAYLOAD, EVENT_TIME) for key in (DEDUPE_KEY, OTHER_KEY))
    if body_hash(first) == body_hash(other):
        raise BodyNotUnique(
            f"another dedupe_key must give another body, or SQS drops the second event; both are "
            f"{quote_value(first.body)}"
        )


def attributes_repeat_the_body(produce: Produce) -> None:
    """Every attribute that differs between two events is in their bodies too."""
    first = produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME)
    again = produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME)
    for other in (
        produce(OTHER_KEY, PAYLOAD, EVENT_TIME),
        produce(DEDUPE_KEY, {**PAYLOAD, "tile": "p33r29"}, EVENT_TIME),
        produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME + timedelta(hours=1)),
    ):
        # An attribute that differs between two sends of one event, like a trace, does not identify the event.
        steady = [name for name in other.attributes if first.attributes.get(name) == again.attributes.get(name)]
        for name in steady:
            value = other.attributes[name]
            if value != first.attributes.get(name) and value not in _body_values(other.body):
                raise AttributeNotInBody(
                    f"attribute {quote_value(name)} differs between events, so the body must contain it; "
                    f"{quote_value(value)} is not there"
                )


def group_is_legal_and_steady(produce: Produce) -> None:
    """SQS accepts the group, and an event keeps it: some queues deduplicate within a group only."""
    first, again = (produce(DEDUPE_KEY, PAYLOAD, EVENT_TIME).group for _ in range(2))
    if not GROUP_PATTERN.fullmatch(first):
        raise GroupInvalid(
            f"a group must be 1 to 128 letters, digits or punctuation without spaces, not {quote_value(first)}"
        )
    if first != again:
        raise GroupInvalid(f"an event must keep its group; it was {quote_value(first)}, then {quote_value(again)}")


CHECKS: tuple[Check, ...] = (
    envelope_keeps_the_contract,
    bytes_are_canonical,
    same_event_gives_the_same_bytes,
    other_key_gives_another_hash,
    attributes_repeat_the_body,
    group_is_legal_and_steady,
)

_CENTRAL_TIME = datetime.fromisoformat("2025-12-04T00:00:00-06:00").tzinfo


def _is_uuid7(value: object) -> bool:
    try:
        return isinstance(value, str) and str(UUID(value)) == value and UUID(value).version == 7
    except ValueError:
        return False


def _is_timestamp(value: object) -> bool:
    try:
        return isinstance(value, str) and read_timestamp(value) == EVENT_TIME
    except ValueError:
        return False


_FIELDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "event_id": ("a UUID of version 7", _is_uuid7),
    "event_source": ("kfm.<domain>.<pipeline>", lambda value: is_event_source(str(value))),
    "event_time": (f"the event's own time in RFC 3339, here {EVENT_TIME.isoformat()}", _is_timestamp),
    "dedupe_key": (f"1 to {MAX_DEDUPE_KEY_LENGTH} printable characters", is_dedupe_key),
    "payload": (
        "an object with the given fields",
        lambda value: isinstance(value, dict) and PAYLOAD.items() <= value.items(),
    ),
}


def _reorder(payload: Mapping[str, Any]) -> dict[str, Any]:
    backwards = reversed(list(payload.items()))
    return {name: _reorder(value) if isinstance(value, Mapping) else value for name, value in backwards}


def _body_values(body: str) -> set[str]:
    """Returns every value in the body as attribute text."""
    try:
        left: list[Any] = [json.loads(body)]
    except ValueError:
        return {body}
    found: set[str] = set()
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
        else:
            found.add(one if isinstance(one, str) else json.dumps(one))
    return found


def _first_difference(first: str, second: str) -> tuple[str, str]:
    at = next((n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
    return quote_value(first[at : at + 40]), quote_value(second[at : at + 40])
