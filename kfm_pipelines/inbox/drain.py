"""Moves queue messages into the inbox: recorded first, deleted second, so that a stop in between loses nothing."""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from kfm_pipelines.aws.queue import Message, Queue
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.errors import KfmError, MessageRefused, Retryable, Terminal, Unreachable
from kfm_pipelines.inbox.parse import build_refusal, read_message
from kfm_pipelines.inbox.record import BatchCounts, RecordedBatch, record
from kfm_pipelines.inbox.telemetry import IntakeTelemetry
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.watermarks.late import tick_watermarks

# Far less than the visibility timeout of the queues, which `kfm doctor` checks.
MAX_DRAIN_SECONDS = 15.0
# Enough receives to be worth a database commit, few enough to stay far inside the visibility timeout.
RECEIVES_PER_COMMIT = 20
CHARACTERS_PER_COMMIT = 4 * 1024 * 1024
# A message seldom comes alone: keys of one upload should share a run.
SETTLING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What was received from all queues, and the problems of those that could not be drained."""

    counts: BatchCounts
    problems: tuple[str, ...]
    unreachable: bool = False


def drain_all(services: Services, *, budget_seconds: float, wait_seconds: int = 0) -> DrainResult:
    """Drains every queue, the urgent one first. None can use up the time of those after it; what they leave is shared
    again. If all are empty, waits so long for a message in the ordinary queue, and for those that come with it."""
    total, problems = BatchCounts(), []
    deadline = time.monotonic() + budget_seconds
    open_intakes = deque(services.intakes)
    while open_intakes:
        intake, began = open_intakes.popleft(), time.monotonic()
        share = max(0.0, (deadline - began) / (len(open_intakes) + 1))
        try:
            total += drain(services, intake.queue, budget_seconds=share)
        except KfmError as error:
            problems.append(f"{error}; will try again")
            if isinstance(error, Unreachable):
                return DrainResult(total, tuple(problems), unreachable=True)  # all queues have the same address
        else:
            if began + share <= time.monotonic() < deadline:  # it may have more
                open_intakes.append(intake)
    if wait_seconds and not total.received and not problems:
        total += drain(services, services.queue, budget_seconds=0, wait_seconds=wait_seconds)
        if total.received:
            time.sleep(SETTLING_SECONDS)
            total += drain(services, services.queue, budget_seconds=budget_seconds)
    return DrainResult(total, tuple(problems))


def drain(services: Services, queue: Queue, *, budget_seconds: float, wait_seconds: int = 0) -> BatchCounts:
    """Drains the queue until it is empty or about `budget_seconds` have passed. While a batch is recorded, the one
    before it is deleted and the next one received."""
    total, database, datasets = BatchCounts(), services.database, services.datasets
    deadline = time.monotonic() + budget_seconds
    database.fetch("SELECT 1")  # fails here rather than use up a receive of a message that cannot be recorded
    with ThreadPoolExecutor(1) as receiver, ThreadPoolExecutor(1) as deleter:
        messages, deletion = _collect(queue, wait_seconds, deadline), None
        while messages:
            following = receiver.submit(_collect, queue, 0, deadline) if time.monotonic() < deadline else None
            telemetry = IntakeTelemetry(services, queue.name)
            deliveries = telemetry.read(messages, partial(read_message, datasets=datasets))
            recorded = record_safely(database, queue.name, messages, deliveries, datasets)
            total += recorded.counts
            try:
                if deletion is not None:
                    deletion.result()
                deletion = deleter.submit(queue.delete, messages)
                tick_watermarks(database, datasets)
            finally:
                telemetry.emit(recorded)
            messages = following.result() if following else ()
            if following and not messages:
                deletion.result()
                messages = _collect(queue, 0, deadline)  # a FIFO queue holds back what follows an undeleted message
        if deletion is not None:
            deletion.result()
    return total


def record_safely(
    database: Database, queue: str, messages: Sequence[Message], deliveries: Sequence[Delivery], datasets: Datasets
) -> RecordedBatch:
    """Records a batch. If the database refuses it, records each message alone, so that one cannot block the others."""
    try:
        return record(database, queue, deliveries, datasets)
    except Terminal as error:
        if len(messages) > 1:
            pairs = zip(messages, deliveries, strict=True)
            return sum(
                (record_safely(database, queue, [one], [read], datasets) for one, read in pairs), RecordedBatch()
            )
        why = MessageRefused(f"the message could not be recorded: {error}")
        refusal = build_refusal(messages[0], why)
        recorded = record(database, queue, [Delivery(refusal.body, refusal=refusal)], datasets)
        return replace(recorded, unrecorded_identities=frozenset(event.identity for event in deliveries[0].events))


def _collect(queue: Queue, wait_seconds: int, deadline: float) -> Sequence[Message]:
    messages: list[Message] = []
    for _ in range(RECEIVES_PER_COMMIT):
        try:
            batch = queue.receive(wait_seconds if not messages else 0)
        except Retryable:
            if not messages:
                raise
            break  # record what was received now, not after its visibility timeout
        messages += batch
        full = sum(len(message.body) for message in messages) >= CHARACTERS_PER_COMMIT
        if not batch or full or time.monotonic() >= deadline:
            break
    return messages
