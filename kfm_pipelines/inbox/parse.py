"""Reading: what one queue message means. A refusal is a result, never an exception."""

from contextlib import suppress
from dataclasses import replace

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.errors import BodyUnreadable, ContractBroken, KfmError, MessageRefused, UniquenessInAttributes
from kfm_pipelines.events import IngestEvent, body_identity, normalise, resolve_event
from kfm_pipelines.events.body import read_body
from kfm_pipelines.state.dead_letters import Refusal
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.text import make_storable, quote_value

REDRIVE = "kfm-redrive"  # on a redriven message: which redrive of which letter it is
MAX_CHARACTERS = 16 * 1024 * 1024
# What producers call the value that tells one message from another.
UNIQUENESS_ATTRIBUTES = ("dedupe_key", "dedup_key", "unique_key", "idempotency_key", "event_id")


def read_message(message: Message, datasets: Datasets) -> Delivery:
    """The events of a message. A record that no dataset takes is refused alone; its neighbours are recorded."""
    token = make_storable(message.attributes.get(REDRIVE, "")) or None
    body = make_storable(message.body)
    try:
        _check_uniqueness(message)
        notices = normalise(message.body)
        _check_total_size(len(notices), len(body))
    except MessageRefused as error:
        return Delivery(body, refusal=build_refusal(message, error), token=token)
    events: list[IngestEvent] = []
    problems: list[MessageRefused] = []
    for number, notice in enumerate(notices, start=1):
        try:
            events.append(_with_message_group(resolve_event(notice, datasets), message))
        except MessageRefused as error:
            problems.append(error if len(notices) == 1 else type(error)(f"record {number} of {len(notices)}: {error}"))
    refusal = build_refusal(message, problems[0]) if problems else None
    return Delivery(body, events=tuple(events), refusal=refusal, token=token)


def build_refusal(message: Message, error: KfmError) -> Refusal:
    """A refusal that remembers everything needed to send the message again as it was."""
    body = make_storable(message.body)
    return Refusal(
        body_identity(body.encode()),
        body,
        error,
        attributes={name: make_storable(value) for name, value in message.attributes.items() if name != REDRIVE},
        attribute_types={name: kind for name, kind in message.types.items() if name != REDRIVE},
        group=message.group,
        sequence=message.sequence,
    )


def _with_message_group(event: IngestEvent, message: Message) -> IngestEvent:
    if message.group is None:
        return event
    return replace(event, message_group=message.group, group_sequence=message.sequence)


def _check_total_size(records: int, length: int) -> None:
    """Each event is kept with the message it came in, so many in a large one weigh as much as many large ones."""
    if records * length > MAX_CHARACTERS:
        raise ContractBroken(f"message has {records} records in {length} characters; send them in several messages")


def _check_uniqueness(message: Message) -> None:
    """An attribute may repeat what the body says. If it says more, SQS would take two such messages for one."""
    stated = {name: message.attributes[name] for name in UNIQUENESS_ATTRIBUTES if message.attributes.get(name)}
    if not stated:
        return
    said = _values(read_body(message.body))
    for name, value in stated.items():
        if value not in said:
            raise UniquenessInAttributes(
                f"the attribute {name} says {quote_value(value)}, which the body does not; what makes a message unique "
                "must be in its body"
            )


def _values(document: object) -> set[str]:
    """Every text in a document, and in the message that SNS may have wrapped; numbers as they are written."""
    found: set[str] = set()
    level = [document]
    while level:
        node = level.pop()
        if isinstance(node, dict):
            level += node.values()
        elif isinstance(node, list):
            level += node
        elif isinstance(node, str | int | float):
            found.add(str(node))
    if isinstance(document, dict) and isinstance(document.get("Message"), str):
        with suppress(BodyUnreadable):
            found |= _values(read_body(document["Message"]))
    return found
