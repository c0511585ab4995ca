"""Drain: move queue messages into the inbox. Record first, delete second, so that a stop in between loses nothing."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kfm_pipelines.datasets import Datasets
from kfm_pipelines.errors import KfmError, MessageRefused, Retryable, Terminal
from kfm_pipelines.messaging.queue import Message, Queue
from kfm_pipelines.operations.reading import read_message, refused
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery, Tally, record

# Enough receives to make one database commit worth it, few enough to stay far inside the visibility timeout.
RECEIVES_PER_COMMIT = 20


@dataclass(frozen=True, slots=True)
class Drained:
    """What came from all queues, and which of them could not be asked."""

    tally: Tally
    problems: tuple[str, ...]


def drain_all(workshop: Workshop, *, budget_seconds: float, wait_seconds: int = 0) -> Drained:
    """Empty every queue, the urgent one first; none can use up the time of those after it."""
    total, problems = Tally(), []
    deadline = time.monotonic() + budget_seconds
    for number, intake in enumerate(workshop.intakes):
        left = deadline - time.monotonic()
        share = max(0.0, left / (len(workshop.intakes) - number))
        wait = wait_seconds if number == len(workshop.intakes) - 1 else 0
        try:
            total += drain(workshop.database, intake.queue, workshop.datasets, budget_seconds=share, wait_seconds=wait)
        except KfmError as error:
            problems.append(f"{error}; will try again")
            if isinstance(error, Retryable):
                break  # they have one address; whoever asks the next one waits as long for the same answer
    return Drained(total, tuple(problems))


def drain(
    database: Database, queue: Queue, datasets: Datasets, *, budget_seconds: float, wait_seconds: int = 0
) -> Tally:
    """Empty the queue, or stop after about `budget_seconds`."""
    total = Tally()
    deadline = time.monotonic() + budget_seconds
    while True:
        messages = _collect(queue, wait_seconds, deadline)
        if not messages:
            return total
        total += record_safely(database, queue.name, [read_message(message, datasets) for message in messages])
        queue.delete(messages)
        if time.monotonic() >= deadline:
            return total


def record_safely(database: Database, queue: str, deliveries: Sequence[Delivery]) -> Tally:
    """Record a batch; should the database refuse it, each message alone, so that one cannot hold up the others."""
    try:
        return record(database, queue, deliveries)
    except Terminal as error:
        if len(deliveries) > 1:
            return sum((record_safely(database, queue, [one]) for one in deliveries), Tally())
        [one] = deliveries
        if one.refusal is not None and not one.events:
            raise
        why = MessageRefused(f"the message could not be recorded: {error}")
        return record(database, queue, [replace(one, events=(), refusal=refused(one.body, why))])


def _collect(queue: Queue, wait_seconds: int, deadline: float) -> Sequence[Message]:
    messages: list[Message] = []
    for _ in range(RECEIVES_PER_COMMIT):
        try:
            batch = queue.receive(wait_seconds if not messages else 0)
        except Retryable:
            if not messages:
                raise
            break  # what was received is in our hands: record it now, not after its visibility timeout
        messages += batch
        if not batch or time.monotonic() >= deadline:
            break
    return messages
