"""The inbox: every event once, by identity, before its message is deleted from the queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import KfmError
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state import dead_letters
from kfm_pipelines.state.claims import LOCK_NAMED
from kfm_pipelines.state.database import Database

if TYPE_CHECKING:
    from psycopg import Connection

PRIORITIES = {"low": 0, "normal": 1, "high": 2}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that is no event of ours, kept as it came."""

    identity: str
    body: str
    error: KfmError


@dataclass(frozen=True, slots=True)
class Delivery:
    """One queue message, read: its events, or why it was refused."""

    body: str
    events: tuple[IngestEvent, ...] = ()
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of a batch of messages."""

    received: int = 0
    recorded: int = 0
    duplicates: int = 0
    refused: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.received + other.received,
            self.recorded + other.recorded,
            self.duplicates + other.duplicates,
            self.refused + other.refused,
        )


def record(database: Database, queue: str, deliveries: Sequence[Delivery]) -> Tally:
    """Commit a batch of messages: new events make their keys due, known ones change nothing."""
    pairs = [(event, delivery.body) for delivery in deliveries for event in delivery.events]
    refusals = sorted((d.refusal for d in deliveries if d.refusal), key=lambda refusal: refusal.identity)
    with database.transaction() as connection:
        _ensure_keys(connection, [event for event, _ in pairs])
        fresh = _insert_events(connection, queue, pairs)
        _make_due(connection, fresh)
        for refusal in refusals:
            dead_letters.record_message(connection, refusal.identity, queue, refusal.body, refusal.error)
        tally = Tally(len(deliveries), len(fresh), len(pairs) - len(fresh), len(refusals))
        _count(connection, queue, tally)
    return tally


def events_of(connection: "Connection[dict[str, Any]]", key: str) -> list[IngestEvent]:
    rows = connection.execute(
        """
        SELECT i.*, k.window_start, k.window_end FROM kfm.inbox i JOIN kfm.keys k ON k.key = i.key
        WHERE i.key = %(key)s ORDER BY i.identity
        """,
        {"key": key},
    )
    return [_event(row) for row in rows]


def _ensure_keys(connection: "Connection[dict[str, Any]]", events: Sequence[IngestEvent]) -> None:
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


def _insert_events(
    connection: "Connection[dict[str, Any]]", queue: str, pairs: Sequence[tuple[IngestEvent, str]]
) -> list[IngestEvent]:
    by_identity = {event.identity: (event, body) for event, body in pairs}
    ordered = [by_identity[identity] for identity in sorted(by_identity)]
    columns: dict[str, list[object]] = {
        name: [getattr(event, name) for event, _ in ordered]
        for name in ("identity", "key", "dataset", "shape", "asset_uri", "etag", "version_id", "size", "sequencer",
                     "event_time", "priority")
    }  # fmt: skip
    rows = connection.execute(
        """
        INSERT INTO kfm.inbox (identity, key, dataset, shape, asset_uri, etag, version_id, size, sequencer,
                               event_time, priority, body, queue)
        SELECT *, %(queue)s
        FROM unnest(%(identity)s::text[], %(key)s::text[], %(dataset)s::text[], %(shape)s::text[],
                    %(asset_uri)s::text[], %(etag)s::text[], %(version_id)s::text[], %(size)s::bigint[],
                    %(sequencer)s::text[], %(event_time)s::timestamptz[], %(priority)s::text[], %(body)s::text[])
        ON CONFLICT (identity) DO NOTHING RETURNING identity
        """,
        {**columns, "body": [body for _, body in ordered], "queue": queue},
    )
    return [by_identity[row["identity"]][0] for row in rows]


def _make_due(connection: "Connection[dict[str, Any]]", events: Sequence[IngestEvent]) -> None:
    urgency: dict[str, int] = {}
    for event in events:
        urgency[event.key] = max(urgency.get(event.key, 0), PRIORITIES[event.priority])
    connection.execute(LOCK_NAMED, {"keys": list(urgency)})
    connection.execute(
        """
        UPDATE kfm.keys k SET due_at = least(k.due_at, clock_timestamp()), priority = greatest(k.priority, n.priority)
        FROM unnest(%(keys)s::text[], %(priorities)s::smallint[]) AS n (key, priority)
        WHERE k.key = n.key
        """,
        {"keys": list(urgency), "priorities": list(urgency.values())},
    )


def _count(connection: "Connection[dict[str, Any]]", queue: str, tally: Tally) -> None:
    connection.execute(
        """
        INSERT INTO kfm.queue_totals AS q (queue, received, recorded, duplicates, refused)
        VALUES (%(queue)s, %(received)s, %(recorded)s, %(duplicates)s, %(refused)s)
        ON CONFLICT (queue) DO UPDATE SET
            received = q.received + excluded.received, recorded = q.recorded + excluded.recorded,
            duplicates = q.duplicates + excluded.duplicates, refused = q.refused + excluded.refused
        """,
        {
            "queue": queue,
            "received": tally.received,
            "recorded": tally.recorded,
            "duplicates": tally.duplicates,
            "refused": tally.refused,
        },
    )


def _event(row: dict[str, Any]) -> IngestEvent:
    bucket, _, object_key = row["asset_uri"].removeprefix("s3://").partition("/")
    return IngestEvent(
        shape=row["shape"],
        identity=row["identity"],
        bucket=bucket,
        object_key=object_key,
        etag=row["etag"],
        version_id=row["version_id"],
        size=row["size"],
        sequencer=row["sequencer"],
        event_time=row["event_time"],
        dataset=row["dataset"],
        granule_start=None,
        granule_end=None,
        priority=row["priority"],
        key=row["key"],
        window_start=row["window_start"],
        window_end=row["window_end"],
    )
