"""The inbox: every event once, by identity, before its message is deleted from the queue."""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
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
        counted = redrive_items.first_arrivals(connection, deliveries)
        told = _told_once(counted)
        refusals = [delivery.refusal for delivery in counted if delivery.refusal]
        _ensure_keys(connection, [event for event, _ in told])
        new, later = _what_is_new(connection, told)
        # All locks on keys first, in one order. Inserting an event locks its key too, but weakly, and strengthening a
        # lock that others wait behind is how consumers and workers come to wait for each other in a circle.
        connection.execute(LOCK_NAMED, {"keys": [event.key for event, _ in new] + [event.key for event in later]})
        fresh = _insert_events(connection, queue, new)
        raced = [event for event, _ in new if event not in fresh]  # another was quicker, perhaps with another place
        _make_due(connection, fresh, _moved(connection, [*later, *raced]))
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
        SELECT i.*, k.window_start, k.window_end, l.identity IS NOT NULL AS late
        FROM kfm.inbox i JOIN kfm.keys k ON k.key = i.key LEFT JOIN kfm.late l ON l.identity = i.identity
        WHERE i.key = %(key)s AND l.state IS DISTINCT FROM 'held' ORDER BY i.identity
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


def _told_once(deliveries: Sequence[Delivery]) -> list[tuple[IngestEvent, str]]:
    """The events of a batch, each identity once, in its last place; and the first message that told of it."""
    told: dict[str, tuple[IngestEvent, str]] = {}
    for delivery in deliveries:
        for event in delivery.events:
            first, body = told.get(event.identity, (event, delivery.body))
            told[event.identity] = (_merged(first, event), body)
    return [told[identity] for identity in sorted(told)]


def _merged(one: IngestEvent, other: IngestEvent) -> IngestEvent:
    """The same event told twice: its last place in the order of writes, whichever was told first."""
    if one is other:
        return one
    sequencer = one.sequencer if _padded(one.sequencer) >= _padded(other.sequencer) else other.sequencer
    return replace(one, sequencer=sequencer, event_time=max(one.event_time, other.event_time))


def _padded(sequencer: str | None) -> str:
    """Without trailing zeros, hexadecimal text compares as if the shorter one were padded with them."""
    return (sequencer or "").lower().rstrip("0")


def _what_is_new(
    connection: "Connection[dict[str, Any]]", told: Sequence[tuple[IngestEvent, str]]
) -> tuple[list[tuple[IngestEvent, str]], list[IngestEvent]]:
    """Events not known yet, and known ones told with a later place: the same content was written again."""
    rows = connection.execute(
        "SELECT identity, sequencer, event_time FROM kfm.inbox WHERE identity = ANY(%(identities)s)",
        {"identities": [event.identity for event, _ in told]},
    )
    known = {row["identity"]: row for row in rows}
    new = [(event, body) for event, body in told if event.identity not in known]
    later = [
        event
        for event, _ in told
        if (row := known.get(event.identity))
        and (_padded(event.sequencer) > _padded(row["sequencer"]) or event.event_time > row["event_time"])
    ]
    return new, later


def _insert_events(
    connection: "Connection[dict[str, Any]]", queue: str, new: Sequence[tuple[IngestEvent, str]]
) -> list[IngestEvent]:
    """Record them; the ones that nobody else has recorded meanwhile."""
    columns: dict[str, list[object]] = {
        name: [getattr(event, name) for event, _ in new]
        for name in ("identity", "key", "dataset", "shape", "asset_uri", "etag", "version_id", "size", "sequencer",
                     "event_time", "priority", "change", "message_group", "group_sequence")
    }  # fmt: skip
    rows = connection.execute(
        """
        INSERT INTO kfm.inbox (identity, key, dataset, shape, asset_uri, etag, version_id, size, sequencer,
                               event_time, priority, change, message_group, group_sequence, body, queue)
        SELECT *, %(queue)s
        FROM unnest(%(identity)s::text[], %(key)s::text[], %(dataset)s::text[], %(shape)s::text[],
                    %(asset_uri)s::text[], %(etag)s::text[], %(version_id)s::text[], %(size)s::bigint[],
                    %(sequencer)s::text[], %(event_time)s::timestamptz[], %(priority)s::text[], %(change)s::text[],
                    %(message_group)s::text[], %(group_sequence)s::numeric[], %(body)s::text[])
        ON CONFLICT (identity) DO NOTHING RETURNING identity
        """,
        {**columns, "body": [body for _, body in new], "queue": queue},
    ).fetchall()
    fresh = {row["identity"] for row in rows}
    return [event for event, _ in new if event.identity in fresh]


def _moved(connection: "Connection[dict[str, Any]]", later: Sequence[IngestEvent]) -> list[IngestEvent]:
    """Move events to their later place; those that moved past another event about their object. Alone in its object an
    event changes nothing by moving."""
    if not later:
        return []
    rows = connection.execute(
        """
        UPDATE kfm.inbox i SET event_time = greatest(i.event_time, told.event_time),
            sequencer = CASE WHEN rtrim(lower(told.sequencer), '0') COLLATE "C"
                                  > coalesce(rtrim(lower(i.sequencer), '0'), '') COLLATE "C"
                             THEN told.sequencer ELSE i.sequencer END
        FROM unnest(%(identities)s::text[], %(sequencers)s::text[], %(times)s::timestamptz[])
             AS told (identity, sequencer, event_time)
        WHERE told.identity = i.identity
        RETURNING i.identity, EXISTS (
            SELECT FROM kfm.inbox o WHERE o.key = i.key AND o.asset_uri = i.asset_uri AND o.identity <> i.identity
        ) AS among_others
        """,
        {
            "identities": [event.identity for event in later],
            "sequencers": [event.sequencer for event in later],
            "times": [event.event_time for event in later],
        },
    ).fetchall()
    among_others = {row["identity"] for row in rows if row["among_others"]}
    return [event for event in later if event.identity in among_others]


def _make_due(
    connection: "Connection[dict[str, Any]]", fresh: Sequence[IngestEvent], moved: Sequence[IngestEvent]
) -> None:
    urgency: dict[str, int] = {}
    for event in [*fresh, *moved]:
        urgency[event.key] = max(urgency.get(event.key, 0), PRIORITIES[event.priority])
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
        priority=row["priority"],
        key=row["key"],
        window_start=row["window_start"],
        window_end=row["window_end"],
        change=row["change"],
        message_group=row["message_group"],
        group_sequence=None if row["group_sequence"] is None else int(row["group_sequence"]),
        late=row["late"],
    )
