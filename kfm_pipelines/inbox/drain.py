"""Moves queue messages into the inbox: recorded first, deleted second, so that a stop in between loses nothing."""

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from kfm_pipelines.aws.queue import BATCH_SIZE, Message, Queue
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.errors import KfmError, MessageRefused, Retryable, Terminal, Unreachable
from kfm_pipelines.inbox.parse import await_certificates, build_refusal, read_message, signatures_of
from kfm_pipelines.inbox.record import BatchCounts, RecordedBatch, record
from kfm_pipelines.inbox.telemetry import IntakeTelemetry
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.watermarks.late import tick_watermarks

log = logging.getLogger(__name__)

# Far less than the visibility timeout of the queues, which `kfm doctor` checks.
MAX_DRAIN_SECONDS = 15.0
# Enough receives to be worth a database commit, few enough to stay far inside the visibility timeout.
RECEIVES_PER_COMMIT = 20
CHARACTERS_PER_COMMIT = 4 * 1024 * 1024
EVENTS_PER_COMMIT = 10_000  # of objects that are split among many keys, or the commit would take all memory
# Calls at a time, because each of them takes at most ten messages and mostly waits for SQS.
CONCURRENT_CALLS = 4
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
    deadline, signatures = time.monotonic() + budget_seconds, signatures_of(services)
    database.fetch("SELECT 1")  # fails here rather than use up a receive of a message that cannot be recorded
    with (
        ThreadPoolExecutor(1) as collector,
        ThreadPoolExecutor(CONCURRENT_CALLS) as receivers,
        ThreadPoolExecutor(CONCURRENT_CALLS) as deleters,
    ):
        collect = partial(_collect, queue, receivers, deadline)
        messages, deletions = collect(wait_seconds), list[Future[int]]()
        while messages:
            following = collector.submit(collect) if time.monotonic() < deadline else None
            messages, postponed = await_certificates(messages, datasets, signatures)
            if postponed:
                log.warning(
                    "%d messages wait in %s until the certificates of SNS can be fetched", postponed, queue.name
                )
            telemetry = IntakeTelemetry(services, queue.name)
            deliveries = telemetry.read(messages, partial(read_message, datasets=datasets, signatures=signatures))
            commits = _commits(messages, deliveries)
            recorded = sum((record_safely(database, queue.name, *one, datasets) for one in commits), RecordedBatch())
            total += recorded.counts
            try:
                _await_all(deletions)
                deletions = [deleters.submit(queue.delete, part) for part in _parts(messages)]
                tick_watermarks(database, datasets)
            finally:
                telemetry.emit(recorded)
            messages = following.result() if following else []
            if following and not messages:
                _await_all(deletions)
                messages = collect()  # a FIFO queue holds back what follows an undeleted message
        _await_all(deletions)
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
        return replace(
            recorded, unrecorded_identities=frozenset(event.notice_identity for event in deliveries[0].events)
        )


def _commits(
    messages: Sequence[Message], deliveries: Sequence[Delivery]
) -> Iterator[tuple[list[Message], list[Delivery]]]:
    """Divides a batch so that no commit has many more events than allowed. Mostly it is one commit."""
    part: tuple[list[Message], list[Delivery]] = ([], [])
    events = 0
    for message, delivery in zip(messages, deliveries, strict=True):
        if part[0] and events + len(delivery.events) > EVENTS_PER_COMMIT:
            yield part
            part, events = ([], []), 0
        part[0].append(message)
        part[1].append(delivery)
        events += len(delivery.events)
    if part[0]:
        yield part


def _collect(queue: Queue, receivers: Executor, deadline: float, wait_seconds: int = 0) -> list[Message]:
    """Receives a batch to record, several calls at a time once the first has found something."""
    messages = queue.receive(wait_seconds)
    for _ in range(RECEIVES_PER_COMMIT // CONCURRENT_CALLS):
        full = sum(len(message.body) for message in messages) >= CHARACTERS_PER_COMMIT
        if not messages or full or time.monotonic() >= deadline:
            break
        batches = _receive_together(queue, receivers)
        messages += [message for batch in batches for message in batch]
        if len(batches) < CONCURRENT_CALLS or not all(batches):
            break
    return messages


def _receive_together(queue: Queue, receivers: Executor) -> list[list[Message]]:
    """Leaves out failed calls: what the others received has to be recorded now, not after its visibility timeout."""
    batches = []
    for call in [receivers.submit(queue.receive) for _ in range(CONCURRENT_CALLS)]:
        with suppress(Retryable):
            batches.append(call.result())
    return batches


def _parts(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Divides the messages into as many as one call takes."""
    return [messages[first : first + BATCH_SIZE] for first in range(0, len(messages), BATCH_SIZE)]


def _await_all(calls: Sequence[Future[int]]) -> None:
    """Waits for every call, and then raises what made one of them fail."""
    wait(calls)
    for call in calls:
        call.result()
