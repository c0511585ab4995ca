"""Merges the events of a batch into the inbox, each identity once.

An event that arrives again may have a later position in the order of writes, because the same content was written
again. It was made at the earliest time it ever arrived with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state.database import Connection, columns
from kfm_pipelines.state.inbox import LISTING, Delivery
from kfm_pipelines.state.keys import LOCK_WITH_DEPENDENTS

FIFO_ENVELOPE = "fifo-envelope"
CONTENT_FIELDS = ("shape", "asset_uri", "etag", "size")


@dataclass(frozen=True, slots=True)
class DistinctEvent:
    """An event in its last position, when it was made, and the first message it arrived in."""

    event: IngestEvent
    made_at: datetime
    body: str


@dataclass(frozen=True, slots=True)
class InboxChanges:
    """What a batch changed in the inbox."""

    new: list[DistinctEvent]
    moved: list[DistinctEvent]  # to a later position, among other events about the same object
    remade: list[DistinctEvent]  # known events that may have been made earlier than recorded
    from_listing: list[DistinctEvent]  # known only from a bucket listing until now
    collisions: int  # known notices that arrived with other content under the same dedupe key


def distinct_events(deliveries: Sequence[Delivery]) -> list[DistinctEvent]:
    distinct: dict[str, DistinctEvent] = {}
    for delivery in deliveries:
        for event in delivery.events:
            known = distinct.get(event.identity)
            distinct[event.identity] = (
                _merge(known, event) if known else DistinctEvent(event, event.event_time, delivery.body)
            )
    return [distinct[identity] for identity in sorted(distinct)]


def merge_into_inbox(connection: Connection, queue: str, events: Sequence[DistinctEvent]) -> InboxChanges:
    """Inserts new events and moves known ones. Locks every key it changes."""
    query = """
        SELECT identity, sequencer, event_time, made_at, queue = %(listing)s AS listed, shape, asset_uri, etag, size
        FROM kfm.inbox WHERE identity = ANY(%(identities)s)
    """
    rows = connection.execute(query, {"identities": [one.event.identity for one in events], "listing": LISTING})
    known = {row["identity"]: row for row in rows}
    unknown = [one for one in events if one.event.identity not in known]
    again = [(one, known[one.event.identity]) for one in events if one.event.identity in known]
    reordered = [one for one, row in again if _is_later(one.event, row)]
    remade = [one for one, row in again if row["made_at"] is not None and one.made_at < row["made_at"]]
    from_listing = [one for one, row in again if row["listed"]]
    # All locks on keys first, in one order. Inserting an event locks its key too, but weakly, and upgrading a lock that
    # others wait for is how consumers and workers deadlock.
    keys = [one.event.key for one in (*unknown, *reordered, *remade, *from_listing)]
    connection.execute(LOCK_WITH_DEPENDENTS, {"keys": keys})
    new = _insert(connection, queue, unknown)
    inserted = {one.event.identity for one in new}
    # Another consumer was faster with the others, perhaps with another position.
    raced = [one for one in unknown if one.event.identity not in inserted]
    among_others = _update_positions(connection, [*reordered, *remade, *raced])
    return InboxChanges(
        new=new,
        moved=[one for one in (*reordered, *raced) if one.event.identity in among_others],
        remade=[*remade, *raced],
        from_listing=from_listing,
        collisions=len(
            {
                one.event.notice_identity
                for one, row in again
                if _collides(_content(one.event), tuple(row[name] for name in CONTENT_FIELDS))
            }
        ),
    )


def count_collisions(deliveries: Sequence[Delivery], events: Sequence[DistinctEvent]) -> int:
    """Counts collisions among messages of the same batch."""
    first = {one.event.identity: _content(one.event) for one in events}
    colliding = {
        (number, event.notice_identity)
        for number, delivery in enumerate(deliveries)
        for event in delivery.events
        if _collides(_content(event), first[event.identity])
    }
    return len(colliding)


def assign_to_queue(connection: Connection, queue: str, events: Sequence[DistinctEvent]) -> list[DistinctEvent]:
    """Moves events from the bucket listing to the queue, as if they came now. Returns those that no run has started."""
    statement = """
        UPDATE kfm.inbox i SET queue = %(queue)s, ready_at = NULL, trace = arrived.trace, sent_at = arrived.sent_at,
            received_at = CASE WHEN state = 'received' THEN clock_timestamp() ELSE received_at END
        FROM unnest(%(identity)s::text[], %(trace)s::text[], %(sent_at)s::timestamptz[])
             AS arrived (identity, trace, sent_at)
        WHERE i.identity = arrived.identity AND queue = %(listing)s
        RETURNING i.identity, state
    """
    arrived = columns(events, "event.identity", "event.trace", "event.sent_at")
    rows = connection.execute(statement, {**arrived, "queue": queue, "listing": LISTING}).fetchall()
    waiting = {row["identity"] for row in rows if row["state"] == "received"}
    return [one for one in events if one.event.identity in waiting]


def _insert(connection: Connection, queue: str, events: Sequence[DistinctEvent]) -> list[DistinctEvent]:
    """Returns the events that no other consumer has inserted meanwhile. Binary parameters (%b) are faster for lists."""
    names = (
        "identity", "key", "dataset", "shape", "asset_uri", "etag", "version_id", "size", "sequencer", "event_time",
        "priority", "change", "message_group", "group_sequence", "partition", "data_time", "trace", "sent_at",
    )  # fmt: skip
    statement = """
        INSERT INTO kfm.inbox (identity, key, dataset, shape, asset_uri, etag, version_id, size, sequencer,
                               event_time, priority, change, message_group, group_sequence, partition, data_time,
                               trace, sent_at, made_at, body, queue)
        SELECT *, %(queue)s
        FROM unnest(%(identity)b::text[], %(key)b::text[], %(dataset)b::text[], %(shape)b::text[],
                    %(asset_uri)b::text[], %(etag)b::text[], %(version_id)b::text[], %(size)s::bigint[],
                    %(sequencer)b::text[], %(event_time)b::timestamptz[], %(priority)b::text[], %(change)b::text[],
                    %(message_group)b::text[], %(group_sequence)s::numeric[], %(partition)b::text[],
                    %(data_time)b::timestamptz[], %(trace)b::text[], %(sent_at)b::timestamptz[],
                    %(made_at)b::timestamptz[], %(body)b::text[])
        ON CONFLICT (identity) DO NOTHING RETURNING identity
    """
    values = columns((one.event for one in events), *names) | columns(events, "made_at", "body")
    rows = connection.execute(statement, {**values, "queue": queue}).fetchall()
    inserted = {row["identity"] for row in rows}
    return [one for one in events if one.event.identity in inserted]


def _update_positions(connection: Connection, events: Sequence[DistinctEvent]) -> set[str]:
    """Moves known events to their later position and earlier making. Returns those that share their object with others:
    moving the only event about an object changes nothing."""
    if not events:
        return set()
    once = {one.event.identity: one for one in events}
    statement = """
        UPDATE kfm.inbox i SET event_time = greatest(i.event_time, arrived.event_time),
            made_at = CASE WHEN i.made_at IS NOT NULL THEN least(i.made_at, arrived.made_at) END,
            sequencer = CASE WHEN rtrim(lower(arrived.sequencer), '0') COLLATE "C"
                                  > coalesce(rtrim(lower(i.sequencer), '0'), '') COLLATE "C"
                             THEN arrived.sequencer ELSE i.sequencer END
        FROM unnest(%(identity)s::text[], %(sequencer)s::text[], %(event_time)s::timestamptz[],
                    %(made_at)s::timestamptz[]) AS arrived (identity, sequencer, event_time, made_at)
        WHERE arrived.identity = i.identity
        RETURNING i.identity, EXISTS (
            SELECT FROM kfm.inbox o WHERE o.key = i.key AND o.asset_uri = i.asset_uri AND o.identity <> i.identity
        ) AS among_others
    """
    arrived = columns(once.values(), "event.identity", "event.sequencer", "event.event_time", "made_at")
    rows = connection.execute(statement, arrived).fetchall()
    return {row["identity"] for row in rows if row["among_others"]}


def _merge(known: DistinctEvent, event: IngestEvent) -> DistinctEvent:
    """Keeps the last position in the order of writes, whichever arrived first."""
    first = known.event
    sequencer = max(first.sequencer, event.sequencer, key=_comparable_sequencer)
    latest = replace(first, sequencer=sequencer, event_time=max(first.event_time, event.event_time))
    return DistinctEvent(latest, min(known.made_at, event.event_time), known.body)


def _is_later(event: IngestEvent, row: dict[str, Any]) -> bool:
    return (
        _comparable_sequencer(event.sequencer) > _comparable_sequencer(row["sequencer"])
        or event.event_time > row["event_time"]
    )


def _content(event: IngestEvent) -> tuple[object, ...]:
    return tuple(getattr(event, name) for name in CONTENT_FIELDS)


def _collides(content: tuple[object, ...], first: tuple[object, ...]) -> bool:
    """Whether a FIFO producer has used a dedupe key for two contents: the first counts, the second is dropped."""
    return content[0] == first[0] == FIFO_ENVELOPE and content != first


def _comparable_sequencer(sequencer: str | None) -> str:
    """Strips trailing zeros: hexadecimal text then compares as if the shorter one were padded with them."""
    return (sequencer or "").lower().rstrip("0")
