"""The inbox: every event once, by identity, before its message is deleted from the queue."""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import UniquenessInAttributes
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state import dead_letters, redrive_items
from kfm_pipelines.state.claims import LOCK_NAMED
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.dead_letters import Refusal

if TYPE_CHECKING:
    from psycopg import Connection

PRIORITIES = {"low": 0, "normal": 1, "high": 2}


@dataclass(frozen=True, slots=True)
class Delivery:
    """One queue message, read: its events, or why it, or one of its records, was refused. `token` marks a redrive."""

    body: str
    events: tuple[IngestEvent, ...] = ()
    refusal: Refusal | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of a batch of messages."""

    received: int = 0
    recorded: int = 0
    duplicates: int = 0
    refused: int = 0
    violations: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def record(database: Database, queue: str, deliveries: Sequence[Delivery]) -> Tally:
    """Commit a batch of messages: new events make their keys due, known ones change nothing."""
    with database.transaction() as connection:
        counted = redrive_items.without_repeats(connection, deliveries)
        pairs = [(event, delivery.body) for delivery in counted for event in delivery.events]
        refusals = [delivery.refusal for delivery in counted if delivery.refusal]
        _ensure_keys(connection, [event for event, _ in pairs])
        fresh, moved = _insert_events(connection, queue, pairs)
        _make_due(connection, fresh, moved)
        dead_letters.record_messages(connection, queue, refusals)
        redrive_items.note_arrivals(connection, counted)
        events = sum(len(delivery.events) for delivery in deliveries)
        tally = Tally(
            received=len(deliveries),
            recorded=len(fresh),
            duplicates=events - len(fresh),
            refused=len(refusals),
            violations=sum(isinstance(refusal.error, UniquenessInAttributes) for refusal in refusals),
        )
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


def known_identities(database: Database, identities: Sequence[str]) -> set[str]:
    rows = database.fetch(
        "SELECT identity FROM kfm.inbox WHERE identity = ANY(%(identities)s)", {"identities": list(identities)}
    )
    return {row["identity"] for row in rows}


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
) -> tuple[list[IngestEvent], list[str]]:
    """The events that are new, and the identities of known ones that turned out to have been written later.

    A known identity may come with a later sequencer, or with one when it had none: the same content was written again.
    The event then moves to its last place in the order of writes, whichever delivery came first.
    """
    by_identity: dict[str, tuple[IngestEvent, str]] = {}
    for event, body in pairs:
        known = by_identity.get(event.identity)
        if known is None or _place(event) > _place(known[0]):
            by_identity[event.identity] = (event, known[1] if known else body)
    ordered = [by_identity[identity] for identity in sorted(by_identity)]
    columns: dict[str, list[object]] = {
        name: [getattr(event, name) for event, _ in ordered]
        for name in ("identity", "key", "dataset", "shape", "asset_uri", "etag", "version_id", "size", "sequencer",
                     "event_time", "priority", "change", "message_group", "group_sequence")
    }  # fmt: skip
    rows = connection.execute(
        """
        INSERT INTO kfm.inbox AS known (identity, key, dataset, shape, asset_uri, etag, version_id, size, sequencer,
                               event_time, priority, change, message_group, group_sequence, body, queue)
        SELECT *, %(queue)s
        FROM unnest(%(identity)s::text[], %(key)s::text[], %(dataset)s::text[], %(shape)s::text[],
                    %(asset_uri)s::text[], %(etag)s::text[], %(version_id)s::text[], %(size)s::bigint[],
                    %(sequencer)s::text[], %(event_time)s::timestamptz[], %(priority)s::text[], %(change)s::text[],
                    %(message_group)s::text[], %(group_sequence)s::numeric[], %(body)s::text[])
        ON CONFLICT (identity) DO UPDATE SET
            sequencer = excluded.sequencer, event_time = greatest(known.event_time, excluded.event_time)
        WHERE rtrim(lower(excluded.sequencer), '0') COLLATE "C"
              > coalesce(rtrim(lower(known.sequencer), '0'), '') COLLATE "C"
           OR (excluded.sequencer IS NULL AND known.sequencer IS NULL AND excluded.event_time > known.event_time)
        RETURNING identity, xmax = 0 AS fresh
        """,
        {**columns, "body": [body for _, body in ordered], "queue": queue},
    ).fetchall()
    fresh = [by_identity[row["identity"]][0] for row in rows if row["fresh"]]
    return fresh, [row["identity"] for row in rows if not row["fresh"]]


def _place(event: IngestEvent) -> tuple[str, datetime]:
    return (event.sequencer or "").lower().rstrip("0"), event.event_time


def _make_due(connection: "Connection[dict[str, Any]]", fresh: Sequence[IngestEvent], moved: Sequence[str]) -> None:
    urgency = _rewritten(connection, moved)
    for event in fresh:
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


def _rewritten(connection: "Connection[dict[str, Any]]", moved: Sequence[str]) -> dict[str, int]:
    """Keys of events that moved past another one about the same object; alone in their object they change nothing."""
    if not moved:
        return {}
    rows = connection.execute(
        """
        SELECT i.key, i.priority FROM kfm.inbox i
        WHERE i.identity = ANY(%(moved)s) AND EXISTS (
            SELECT FROM kfm.inbox o WHERE o.key = i.key AND o.asset_uri = i.asset_uri AND o.identity <> i.identity)
        """,
        {"moved": list(moved)},
    )
    return {row["key"]: PRIORITIES[row["priority"]] for row in rows}


def _count(connection: "Connection[dict[str, Any]]", queue: str, tally: Tally) -> None:
    connection.execute(
        """
        INSERT INTO kfm.queue_totals AS q (queue, received, recorded, duplicates, refused, violations)
        VALUES (%(queue)s, %(received)s, %(recorded)s, %(duplicates)s, %(refused)s, %(violations)s)
        ON CONFLICT (queue) DO UPDATE SET
            received = q.received + excluded.received, recorded = q.recorded + excluded.recorded,
            duplicates = q.duplicates + excluded.duplicates, refused = q.refused + excluded.refused,
            violations = q.violations + excluded.violations
        """,
        {"queue": queue, **asdict(tally)},
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
        change=row["change"],
        message_group=row["message_group"],
        group_sequence=None if row["group_sequence"] is None else int(row["group_sequence"]),
    )
