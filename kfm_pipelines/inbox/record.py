"""Records events in the inbox, in one transaction per batch, and their raw messages in the archive."""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime

from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.errors import IntegrityBroken, KfmError, UniquenessInAttributes
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox.deduplicate import (
    DistinctEvent,
    InboxChanges,
    assign_to_queue,
    count_collisions,
    distinct_events,
    merge_into_inbox,
)
from kfm_pipelines.services import Services
from kfm_pipelines.state import dead_letters, inbox
from kfm_pipelines.state.database import Connection, Database, columns
from kfm_pipelines.state.inbox import LISTING, Delivery
from kfm_pipelines.state.keys import LOCK_WITH_DEPENDENTS, PRIORITIES
from kfm_pipelines.stores.layout import archived_event
from kfm_pipelines.watermarks import due, late, streams

REGISTERED = "registered for a replay"


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Messages, and their notices. A notice whose object is split among many keys counts once."""

    received: int = 0
    recorded: int = 0
    duplicates: int = 0
    refused: int = 0
    violations: int = 0

    def __add__(self, other: "BatchCounts") -> "BatchCounts":
        return BatchCounts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    counts: BatchCounts = field(default_factory=BatchCounts)
    new_identities: frozenset[str] = frozenset()  # of notices
    collisions: int = 0
    unrecorded_identities: frozenset[str] = frozenset()  # of notices that the database refused

    def __add__(self, other: "RecordedBatch") -> "RecordedBatch":
        return RecordedBatch(
            self.counts + other.counts,
            self.new_identities | other.new_identities,
            self.collisions + other.collisions,
            self.unrecorded_identities | other.unrecorded_identities,
        )


def record(
    database: Database, queue: str, deliveries: Sequence[Delivery], datasets: Datasets, *, now: datetime | None = None
) -> RecordedBatch:
    """Commits a batch of messages: new events make their keys due and advance their streams, known ones change nothing.
    `now` replaces the database's clock for watermarks and waits."""
    with database.transaction() as connection:
        counted = inbox.first_arrivals(connection, deliveries)
        distinct = distinct_events(counted)
        refusals = [delivery.refusal for delivery in counted if delivery.refusal]
        _ensure_keys(connection, distinct)
        changes = merge_into_inbox(connection, queue, distinct)
        requested = [*changes.new, *assign_to_queue(connection, queue, changes.from_listing)]
        events = [event for delivery in counted for event in delivery.events]
        advance_streams(connection, datasets, events, changes, now)
        moved = [one.event for one in changes.moved]
        due.make_due(connection, datasets, [one.event for one in requested], moved, now)
        dead_letters.record_messages(connection, queue, refusals)
        inbox.record_arrivals(connection, counted)
        new = frozenset(one.event.notice_identity for one in changes.new)
        counts = BatchCounts(
            received=len(deliveries),
            recorded=len(new),
            duplicates=sum(len(delivery.notices) for delivery in deliveries) - len(new),
            refused=len(refusals),
            violations=sum(isinstance(refusal.error, UniquenessInAttributes) for refusal in refusals),
        )
        _record_queue_totals(connection, queue, counts)
    collisions = changes.collisions + count_collisions(counted, distinct)
    return RecordedBatch(counts, new, collisions)


def register_events(
    database: Database, datasets: Datasets, events: Sequence[tuple[IngestEvent, str]], actor: str
) -> int:
    """Records events found by listing a bucket, each with its body, and returns of how many notices. Their keys must
    exist and become due only on request, or by a later notification, which is the same event. New events are released
    even if they turn out late, because registering one is a request to count it."""
    with database.transaction() as connection:
        distinct = distinct_events([Delivery(body, (event,)) for event, body in events])
        changes = merge_into_inbox(connection, LISTING, distinct)
        _release(connection, datasets, [one.event for one in changes.new], actor)
        advance_streams(connection, datasets, [one.event for one in distinct], changes, None)
        due.make_due(connection, datasets, [], [one.event for one in changes.moved], None)
    return len({one.event.notice_identity for one in changes.new})


def request_events(
    database: Database, datasets: Datasets, queue: str, events: Sequence[tuple[IngestEvent, str]]
) -> list[str]:
    """Treats registered events as if their notifications came now: their keys become due by their declaration. Returns
    the keys. An event that was notified, or whose key a run has taken, is left as it is."""
    with database.transaction() as connection:
        distinct = distinct_events([Delivery(body, (event,)) for event, body in events])
        connection.execute(LOCK_WITH_DEPENDENTS, {"keys": [one.event.key for one in distinct]})
        requested = assign_to_queue(connection, queue, distinct)
        due.make_due(connection, datasets, [one.event for one in requested], [], None)
    return sorted({one.event.key for one in requested})


def advance_streams(
    connection: Connection,
    datasets: Datasets,
    events: Sequence[IngestEvent],
    changes: InboxChanges,
    now: datetime | None,
) -> None:
    """Advances streams by all events, then evaluates the lateness of new and remade ones. Locks no key after this."""
    new = {one.event.identity for one in changes.new}
    evaluated = [*new, *(one.event.identity for one in changes.remade)]
    if not evaluated and not streams.datasets_with_progress(connection, datasets, events):
        return
    streams.lock_streams(connection, (event.dataset for event in events))
    streams.advance_streams(connection, datasets, events, evaluated, now)
    changed = [one for one in late.evaluate_lateness(connection, datasets, evaluated) if one.identity not in new]
    due.make_keys_due(connection, [one.key for one in changed if not one.unasked])


def archive_events(services: Services, keys: Sequence[str], *, recheck_store: bool = False) -> dict[str, KfmError]:
    """Writes the raw messages of the keys' events to the store, once per identity, and returns the keys for which that
    failed. With `recheck_store` also those marked as archived that are missing: the store may be another one, or have
    lost them."""
    query = """
        SELECT k.key, i.identity, i.body, i.archived_at
        FROM kfm.keys k JOIN kfm.inbox i ON i.key = ANY(ARRAY[k.key, k.inputs_from])
        WHERE k.key = ANY(%(keys)s) AND (i.archived_at IS NULL OR %(again)s) ORDER BY i.identity
    """
    rows = services.database.fetch(query, {"keys": list(keys), "again": recheck_store})
    paths = {row["identity"]: archived_event(row["identity"]) for row in rows}
    there = services.store.exists_all(paths[row["identity"]] for row in rows if row["archived_at"] is not None)
    bodies = {paths[row["identity"]]: row["body"].encode() for row in rows}
    failures = services.store.create_all({path: body for path, body in bodies.items() if path not in there})
    # A file with other bytes is there already, from another message with this identity.
    failed = {path: error for path, error in failures.items() if not isinstance(error, IntegrityBroken)}
    archived = [identity for identity, path in paths.items() if path not in failed]
    if archived:
        statement = "UPDATE kfm.inbox SET archived_at = clock_timestamp() WHERE identity = ANY(%(identities)s)"
        services.database.execute(statement, {"identities": archived})
    return {row["key"]: failed[path] for row in rows if (path := paths[row["identity"]]) in failed}


def _ensure_keys(connection: Connection, events: Sequence[DistinctEvent]) -> None:
    # In the order of the keys, so that two consumers never deadlock.
    first = {one.event.key: one.event for one in events}
    ordered = [first[key] for key in sorted(first)]
    statement = """
        INSERT INTO kfm.keys (priority, key, dataset, window_start, window_end)
        SELECT %(lowest)s, * FROM unnest(
            %(key)s::text[], %(dataset)s::text[], %(window_start)s::timestamptz[], %(window_end)s::timestamptz[])
        ON CONFLICT DO NOTHING
    """
    lowest = {"lowest": min(PRIORITIES.values())}  # the events raise it
    connection.execute(statement, {**columns(ordered, "key", "dataset", "window_start", "window_end"), **lowest})


def _record_queue_totals(connection: Connection, queue: str, counts: BatchCounts) -> None:
    statement = """
        INSERT INTO kfm.queue_totals AS q (queue, received, recorded, duplicates, refused, violations)
        VALUES (%(queue)s, %(received)s, %(recorded)s, %(duplicates)s, %(refused)s, %(violations)s)
        ON CONFLICT (queue) DO UPDATE SET
            received = q.received + excluded.received, recorded = q.recorded + excluded.recorded,
            duplicates = q.duplicates + excluded.duplicates, refused = q.refused + excluded.refused,
            violations = q.violations + excluded.violations
    """
    connection.execute(statement, {"queue": queue, **asdict(counts)})


def _release(connection: Connection, datasets: Datasets, events: Sequence[IngestEvent], actor: str) -> None:
    """Releases events before their lateness is known. They wait until their keys are requested."""
    known = columns(events, "identity", "key", "dataset")
    rules = [datasets[name].late for name in known["dataset"]]
    statement = """
        INSERT INTO kfm.late (identity, key, dataset, rule, state, is_late, changed_by, reason)
        SELECT n.*, 'released', false, %(actor)s, %(reason)s
        FROM unnest(%(identity)s::text[], %(key)s::text[], %(dataset)s::text[], %(rules)s::text[]) AS n
    """
    connection.execute(statement, {**known, "rules": rules, "actor": actor, "reason": REGISTERED})
    statement = "UPDATE kfm.inbox SET ready_at = 'infinity' WHERE identity = ANY(%(identities)s)"
    connection.execute(statement, {"identities": [event.identity for event in events]})
