"""Reading: what one queue message means. A refusal is a result, never an exception."""

from dataclasses import replace

from kfm_pipelines.datasets import Datasets
from kfm_pipelines.errors import KfmError, MessageRefused, UniquenessInAttributes
from kfm_pipelines.events import IngestEvent, body_identity, fold, normalise
from kfm_pipelines.events.quoting import quoted
from kfm_pipelines.messaging.queue import Message
from kfm_pipelines.state.dead_letters import Refusal
from kfm_pipelines.state.inbox import Delivery

REDRIVE = "kfm-redrive"  # on a redriven message: which redrive of which letter it is
SEQUENCE = "kfm-sequence"  # on a redriven message: the place in its group that it had at first
OURS = (REDRIVE, SEQUENCE)
# What producers call the value that tells one message from another.
UNIQUENESS = ("dedupe_key", "dedup_key", "unique_key", "idempotency_key", "event_id")


def read_message(message: Message, datasets: Datasets) -> Delivery:
    """The events of a message. A record that no dataset takes is refused alone; its neighbours are recorded."""
    token = message.attributes.get(REDRIVE)
    body = storable(message.body)
    try:
        _check_uniqueness(message)
        notices = normalise(message.body)
    except MessageRefused as error:
        return Delivery(body, refusal=refused(body, error, message), token=token)
    events: list[IngestEvent] = []
    problems: list[MessageRefused] = []
    for number, notice in enumerate(notices, start=1):
        try:
            events.append(_placed(fold(notice, datasets), message))
        except MessageRefused as error:
            problems.append(error if len(notices) == 1 else type(error)(f"record {number} of {len(notices)}: {error}"))
    refusal = refused(body, problems[0], message) if problems else None
    return Delivery(body, events=tuple(events), refusal=refusal, token=token)


def refused(body: str, error: KfmError, message: Message | None = None) -> Refusal:
    """A refusal that remembers everything needed to send the message again as it was."""
    identity = body_identity(body.encode())
    if message is None:
        return Refusal(identity, body, error)
    return Refusal(
        identity,
        body,
        error,
        attributes={
            name: storable(value) for name, value in message.attributes.items() if name not in (REDRIVE, SEQUENCE)
        },
        attribute_types={name: kind for name, kind in message.types.items() if name not in OURS},
        group=message.group,
        sequence=_sequence(message),
    )


def storable(text: str) -> str:
    """The text as Postgres can keep it."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _placed(event: IngestEvent, message: Message) -> IngestEvent:
    if message.group is None:
        return event
    return replace(event, message_group=message.group, group_sequence=_sequence(message))


def _sequence(message: Message) -> int | None:
    """A redriven message is no later than it was; SQS has numbered it anew."""
    kept = message.attributes.get(SEQUENCE, "")
    return int(kept) if kept.isascii() and kept.isdigit() and len(kept) <= 40 else message.sequence


def _check_uniqueness(message: Message) -> None:
    """An attribute may repeat what the body says. If it says more, SQS would take two such messages for one."""
    for name in UNIQUENESS:
        value = message.attributes.get(name)
        if value and value not in message.body:
            raise UniquenessInAttributes(
                f"the attribute {name} says {quoted(value)}, which the body does not; what makes a message unique "
                "must be in its body"
            )
