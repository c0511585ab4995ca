"""Reads one queue message into a delivery. A refusal is a result, never an exception."""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.aws.signatures import SignatureChecker
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import (
    BodyUnreadable,
    ContractBroken,
    KfmError,
    MessageRefused,
    NoticeUnwanted,
    SenderUnproven,
    UniquenessInAttributes,
)
from kfm_pipelines.events import IngestEvent, body_identity, normalise, resolve_events
from kfm_pipelines.events.body import read_body
from kfm_pipelines.services import Services
from kfm_pipelines.state.dead_letters import Refusal
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.text import make_storable, quote_value

REDRIVE = "kfm-redrive"  # attribute of a redriven message: the letter and the number of the redrive
MAX_CHARACTERS = 16 * 1024 * 1024
# Attributes in which producers put the value that makes a message unique.
UNIQUENESS_ATTRIBUTES = ("dedupe_key", "dedup_key", "unique_key", "idempotency_key", "event_id")


def read_message(message: Message, datasets: Datasets, signatures: SignatureChecker | None = None) -> Delivery:
    """Returns the events of a message. A record that no dataset takes is refused without the others, and so is one of a
    feed that requires signatures and cannot be shown to come from its topic. A provider announces more than anybody
    wants: what no dataset takes of that is only counted."""
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
    unwanted = 0
    for number, notice in enumerate(notices, start=1):
        try:
            resolved = resolve_events(notice, datasets)
            _check_sender(message, datasets[resolved[0].dataset], signatures)
            if (len(events) + len(resolved)) * len(body) > MAX_CHARACTERS:
                raise ContractBroken(f"message of {len(body)} characters is for too many keys; send a shorter one")
            if message.group is not None:
                resolved = tuple(
                    replace(event, message_group=message.group, group_sequence=message.sequence) for event in resolved
                )
            events += resolved
        except NoticeUnwanted:
            unwanted += 1
        except MessageRefused as error:
            problems.append(error if len(notices) == 1 else type(error)(f"record {number} of {len(notices)}: {error}"))
    refusal = build_refusal(message, problems[0]) if problems else None
    return Delivery(body, events=tuple(events), refusal=refusal, token=token, unwanted=unwanted)


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


def signatures_of(services: Services) -> SignatureChecker:
    """Returns the checker of this process, which keeps the certificates it has seen."""
    return services.load_once("signatures", SignatureChecker)


def await_certificates(
    messages: Sequence[Message], datasets: Datasets, signatures: SignatureChecker
) -> tuple[list[Message], int]:
    """Returns the messages that can be judged now, and how many cannot because the certificate that signed them is out
    of reach; those stay in the queue and come again."""
    topics = {one.input.provider.topic for one in datasets.values() if _requires_signature(one) and one.input.provider}
    if not topics:
        return list(messages), 0
    judged = [one for one in messages if _can_be_judged(one, topics, signatures)]
    return judged, len(messages) - len(judged)


def _can_be_judged(message: Message, topics: Set[str], signatures: SignatureChecker) -> bool:
    envelope = _envelope(message)
    topic = str(envelope.get("TopicArn"))
    return topic not in topics or signatures.has_certificate(envelope, topic)


def _check_sender(message: Message, dataset: Dataset, signatures: SignatureChecker | None) -> None:
    feed = dataset.input.provider
    if feed is None or not _requires_signature(dataset):
        return
    if signatures is None:
        raise SenderUnproven(f"{dataset.dataset} requires signed messages, and nothing here can check a signature")
    signatures.check(_envelope(message), feed.topic, datetime.now(UTC))


def _requires_signature(dataset: Dataset) -> bool:
    return dataset.input.provider is not None and dataset.input.provider.signature == "required"


def _envelope(message: Message) -> Mapping[str, Any]:
    """Returns the envelope of SNS, or an empty one, which proves nothing."""
    with suppress(BodyUnreadable):
        document = read_body(message.body)
        if isinstance(document, dict):
            return document
    return {}


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
