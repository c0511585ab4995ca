"""Drain: move queue messages into the inbox. Record first, delete second, so that a stop in between loses nothing."""

import time
from collections.abc import Sequence

from kfm_pipelines.datasets import Datasets
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events import body_identity, fold, normalise
from kfm_pipelines.messaging.queue import Message, Queue
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery, Refusal, Tally, record

# Enough receives to make one database commit worth it, few enough to stay far inside the visibility timeout.
RECEIVES_PER_COMMIT = 20


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
        total += record(database, queue.name, [read_message(message.body, datasets) for message in messages])
        queue.delete(messages)
        if time.monotonic() >= deadline:
            return total


def read_message(body: str, datasets: Datasets) -> Delivery:
    """What one message means; a refusal is a result, never an exception."""
    storable = body.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    try:
        events = tuple(fold(notice, datasets) for notice in normalise(body))
    except MessageRefused as error:
        return Delivery(storable, refusal=Refusal(body_identity(storable.encode()), storable, error))
    return Delivery(storable, events=events)


def _collect(queue: Queue, wait_seconds: int, deadline: float) -> Sequence[Message]:
    messages: list[Message] = []
    for _ in range(RECEIVES_PER_COMMIT):
        batch = queue.receive(wait_seconds if not messages else 0)
        messages += batch
        if not batch or time.monotonic() >= deadline:
            break
    return messages
