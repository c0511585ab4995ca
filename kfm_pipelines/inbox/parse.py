"""Reads one queue message into a delivery. A refusal is a result, never an exception."""

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

REDRIVE = "kfm-redrive"  # attribute of a redriven message: the letter and the number of the redrive
MAX_CHARACTERS = 16 * 1024 * 1024
# Attributes in which producers put the value that makes a message unique.
UNIQUENESS_ATTRIBUTES = ("dedupe_key", "dedup_key", "unique_key", "idempotency_key", "event_id")


def read_message(message: Message, datasets: Datasets) -> Delivery:
    """Returns the events of a message. A record that no dataset takes is refused without the others."""
    token = make_storable(message.attributes.get(REDRIVE, "")) or None
    body = make_storable(message.body)
    try:
        _check_uniqueness(message)
        notices = normalise(message.body)
        if len(notices) * len(body) > MAX_CHARACTERS:  # each event is stored with its whole message
            sizes = f"{len(notices)} records in {len(body)} characters"
            raise ContractBroken(f"message has {sizes}; send them in several messages")
    except MessageRefused as error:
        return Delivery(body, refusal=build_refusal(message, error), token=token)
    events: list[IngestEvent] = []
    problems: list[MessageRefused] = []
    for number, notice in enumerate(notices, start=1):
        try:
            event = resolve_event(notice, datasets)
            if message.group is not None:
                event = replace(event, message_group=message.group, group_sequence=message.sequence)
            events.append(event)
        except MessageRefused as error:
            problems.append(error if len(notices) == 1 else type(error)(f"record {number} of {len(notices)}: {error}"))
    refusal = build_refusal(message, problems[0]) if problems else None
    return Delivery(body, events=tuple(events), refusal=refusal, token=token)


def build_refusal(message: Message, error: KfmError) -> Refusal:
    """Returns a refusal with everything needed to send the same message again."""
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


def _check_uniqueness(message: Message) -> None:
    """Refuses attributes with values that are not in the body: SQS would take two such messages for one."""
    stated = {name: message.attributes[name] for name in UNIQUENESS_ATTRIBUTES if message.attributes.get(name)}
    if not stated:
        return
    values = _values(read_body(message.body))
    for name, value in stated.items():
        if value not in values:
            raise UniquenessInAttributes(
                f"the attribute {name} is {quote_value(value)}, which is not in the body; what makes a message unique "
                "must be in its body"
            )


def _values(document: object) -> set[str]:
    """Returns every text and number in a document and in a message wrapped by SNS."""
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
