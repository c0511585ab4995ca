"""Records a batch of messages in the inbox: one transaction for events, due keys, streams and refusals."""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime

from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.errors import UniquenessInAttributes
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox import deduplicate
from kfm_pipelines.inbox.deduplicate import DistinctEvent
from kfm_pipelines.state import dead_letters, inbox
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.state.keys import LOCK_WITH_DEPENDENTS, PRIORITIES
from kfm_pipelines.watermarks import due, late, streams


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What came of a batch of messages."""

    received: int = 0
    recorded: int = 0
    duplicates: int = 0
    refused: int = 0
    violations: int = 0

    def __add__(self, other: "BatchCounts") -> "BatchCounts":
        return BatchCounts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """What came of a batch of messages: counted, and which events were new."""

    counts: BatchCounts = field(default_factory=BatchCounts)
    new_identities: frozenset[str] = frozenset()
    collisions: int = 0
    unrecorded_identities: frozenset[str] = frozenset()  # events that the database would not take

    def __add__(self, other: "RecordedBatch") -> "RecordedBatch":
        return RecordedBatch(
            self.counts + other.counts,
            self.new_identities | other.new_identities,
            self.collisions + other.collisions,
            self.unrecorded_identities | other.unrecorded_identities,
        )


def record(
    database: Database,
    queue: str,
    deliveries: Sequence[Delivery],
    datasets: Datasets,
    *,
    now: datetime | None = None,
) -> RecordedBatch:
    """Commit a batch of messages: new events make their keys due, known ones change nothing. How far streams have come
    is part of it, and what is late by that. `now` is the clock that watermarks and waits go by; the database's is."""
    with database.transaction() as connection:
        counted = inbox.first_arrivals(connection, deliveries)
        told = deduplicate.distinct_events(counted)
        refusals = [delivery.refusal for delivery in counted if delivery.refusal]
        _ensure_keys(connection, [one.event for one in told])
        news = deduplicate.compare_with_inbox(connection, told)
        # All locks on keys first, in one order. Inserting an event locks its key too, but weakly, and strengthening a
        # lock that others wait behind is how consumers and workers come to wait for each other in a circle.
        connection.execute(LOCK_WITH_DEPENDENTS, {"keys": news.keys})
        fresh = deduplicate.insert(connection, queue, news.new)
        raced = [one for one in news.new if one not in fresh]  # another was quicker, perhaps with another place
        among_others = deduplicate.update_positions(connection, [*news.reordered, *news.made_earlier, *raced])
        moved = [one for one in (*news.reordered, *raced) if one.event.identity in among_others]
        taken = deduplicate.assign_to_queue(connection, queue, news.from_listing)
        said = [event for delivery in counted for event in delivery.events]
        advance_streams(connection, datasets, said, fresh, [*news.made_earlier, *raced], now)
        wanted = [one.event for one in (*fresh, *taken)]
        due.make_due(connection, datasets, wanted, [one.event for one in moved], now)
        dead_letters.record_messages(connection, queue, refusals)
        inbox.record_arrivals(connection, counted)
        events = sum(len(delivery.events) for delivery in deliveries)
        tally = BatchCounts(
            received=len(deliveries),
            recorded=len(fresh),
            duplicates=events - len(fresh),
            refused=len(refusals),
            violations=sum(isinstance(refusal.error, UniquenessInAttributes) for refusal in refusals),
        )
        _record_queue_totals(connection, queue, tally)
    collisions = news.collisions + deduplicate.count_collisions(counted, told)
    return RecordedBatch(tally, frozenset(one.event.identity for one in fresh), collisions)


def _ensure_keys(connection: Connection, events: Sequence[IngestEvent]) -> None:
    # In the order of the keys, so that two consumers never wait for each other in a circle.
    first = {event.key: event for event in events}
    ordered = [first[key] for key in sorted(first)]
    connection.execute(
        """
        INSERT INTO kfm.keys (priority, key, dataset, window_start, window_end)
        SELECT %(lowest)s, *
        FROM unnest(%(keys)s::text[], %(datasets)s::text[], %(starts)s::timestamptz[], %(ends)s::timestamptz[])
        ON CONFLICT DO NOTHING
        """,
        {
            "keys": [event.key for event in ordered],
            "datasets": [event.dataset for event in ordered],
            "starts": [event.window_start for event in ordered],
            "ends": [event.window_end for event in ordered],
            "lowest": min(PRIORITIES.values()),  # the events raise it
        },
    )


def advance_streams(
    connection: Connection,
    datasets: Datasets,
    events: Sequence[IngestEvent],
    fresh: Sequence[DistinctEvent],
    repeated: Sequence[DistinctEvent],
    now: datetime | None,
) -> None:
    """Let streams advance by everything that was told, then judge by that what is new, or was made earlier than was
    known. From here on no key may be locked."""
    new = {one.event.identity for one in fresh}
    judged = [*new, *(one.event.identity for one in repeated)]
    if not judged and not streams.datasets_with_progress(connection, datasets, events):
        return
    streams.lock_streams(connection, (event.dataset for event in events))
    streams.advance_streams(connection, datasets, events, judged, now)
    changed = [one for one in late.evaluate_lateness(connection, datasets, judged) if one.identity not in new]
    due.make_keys_due(connection, [one.key for one in changed if not one.unasked])


def _record_queue_totals(connection: Connection, queue: str, counts: BatchCounts) -> None:
    connection.execute(
        """
        INSERT INTO kfm.queue_totals AS q (queue, received, recorded, duplicates, refused, violations)
        VALUES (%(queue)s, %(received)s, %(recorded)s, %(duplicates)s, %(refused)s, %(violations)s)
        ON CONFLICT (queue) DO UPDATE SET
            received = q.received + excluded.received, recorded = q.recorded + excluded.recorded,
            duplicates = q.duplicates + excluded.duplicates, refused = q.refused + excluded.refused,
            violations = q.violations + excluded.violations
        """,
        {"queue": queue, **asdict(counts)},
    )
