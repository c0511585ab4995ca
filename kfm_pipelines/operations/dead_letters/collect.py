"""Turns messages in the dead-letter queues into letters, and deletes copies of settled letters."""

from dataclasses import replace
from functools import partial

from kfm_pipelines.aws.queue import Message, Queue
from kfm_pipelines.errors import DeliveryExhausted, KfmError
from kfm_pipelines.inbox.drain import record_safely
from kfm_pipelines.inbox.parse import build_refusal, read_message, signatures_of
from kfm_pipelines.inbox.telemetry import IntakeTelemetry
from kfm_pipelines.operations.dead_letters import tables
from kfm_pipelines.operations.dead_letters.export import LETTER_ATTRIBUTE, export_letters
from kfm_pipelines.operations.dead_letters.redrive_tables import settle_running
from kfm_pipelines.services import Services
from kfm_pipelines.state.inbox import Delivery, known_identities

RECEIVES_PER_QUEUE = 3  # copies of open letters stay in the queue and come up in turn


def collect_and_export_letters(services: Services) -> list[str]:
    """Collects and exports dead letters and returns messages for the tick. What fails now is tried again."""
    try:
        collected = collect_dead_messages(services)
        settle_running(services.database)
        problems = export_letters(services)
    except KfmError as error:
        return [f"dead letters: {error}; will try again"]
    return [f"{collected} messages that SQS gave up on became dead letters"] * bool(collected) + problems[:3]


def collect_dead_messages(services: Services) -> int:
    """Turns every message that SQS moved into a letter and returns how many there were."""
    collected = 0
    for queue in services.dead_letter_queues:
        for _ in range(RECEIVES_PER_QUEUE):
            messages = queue.receive()
            if not messages:
                break
            collected += _collect_messages(services, queue, messages)
    return collected


def _collect_messages(services: Services, queue: Queue, messages: list[Message]) -> int:
    copies = [message for message in messages if _copied_letter_id(message) is not None]
    moved = [message for message in messages if _copied_letter_id(message) is None]
    for message in moved:
        # SQS names no source for a message that was put there by hand.
        sources = [intake.queue.name for intake in services.intakes if intake.dead_letters.name == queue.name]
        source = message.moved_from or (services.queue.name if services.queue.name in sources else sources[0])
        arrivals = IntakeTelemetry(services, source)
        read = arrivals.read([message], partial(_read_delivery, services))
        arrivals.emit(record_safely(services.database, source, [message], read, services.datasets))
    queue.delete([*moved, *_settled_copies(services, copies)])
    return len(moved)


def _copied_letter_id(message: Message) -> int | None:
    """Returns the letter this is a copy of. A message that SQS moved is no copy, whatever its attributes."""
    number = message.attributes.get(LETTER_ATTRIBUTE, "")
    ours = message.moved_from is None and number.isascii() and number.isdigit() and len(number) <= 18
    return int(number) if ours else None


def _read_delivery(services: Services, message: Message) -> Delivery:
    """Treats events that are in the inbox as duplicates, and anything else as a letter."""
    read = read_message(message, services.datasets, signatures_of(services))
    if read.refusal is not None:
        return read
    known = known_identities(services.database, [event.identity for event in read.events])
    if len(known) == len(read.events):
        return read
    why = DeliveryExhausted(
        f"SQS set this message aside after {message.receives} receives, though it can be read; "
        "the consumer could not record it. Redrive it when the consumer works again"
    )
    refusal = replace(build_refusal(message, why), dataset=read.events[0].dataset, key=read.events[0].key)
    return Delivery(read.body, refusal=refusal, token=read.token)


def _settled_copies(services: Services, copies: list[Message]) -> list[Message]:
    """Returns the copies of letters that are neither open nor in a redrive."""
    numbers = {message.receipt: _copied_letter_id(message) for message in copies}
    states = tables.states_of(services.database, [number for number in numbers.values() if number is not None])
    waiting = {number for number, state in states.items() if state in ("open", "redriving")}
    return [message for message in copies if numbers[message.receipt] not in waiting]
