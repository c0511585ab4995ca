"""What messages tell of events: each event once, however often it is told, and what of it was not known before.

An event told again may have a later place in the order of writes, because the same content was written again. When it
was made is the earliest time it was ever told with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state.database import Connection
from kfm_pipelines.state.inbox import LISTING

if TYPE_CHECKING:
    from kfm_pipelines.state.inbox import Delivery

FIFO_ENVELOPE = "fifo-envelope"
CONTENT_FIELDS = ("shape", "asset_uri", "etag", "size")


@dataclass(frozen=True, slots=True)
class DistinctEvent:
    """An event in its last place, when it was made, and the first message that told of it."""

    event: IngestEvent
    made_at: datetime
    body: str


@dataclass(frozen=True, slots=True)
class InboxDelta:
    """What of a batch was not known: events, later places of known ones, that known ones were made earlier, and that
    somebody tells of those that were only found in a bucket."""

    new: list[DistinctEvent]
    reordered: list[DistinctEvent]
    made_earlier: list[DistinctEvent]
    from_listing: list[DistinctEvent]
    collisions: int  # known events that a FIFO producer tells with other content under the same dedupe key

    @property
    def keys(self) -> list[str]:
        return [told.event.key for told in (*self.new, *self.reordered, *self.made_earlier, *self.from_listing)]


def distinct_events(deliveries: "Sequence[Delivery]") -> list[DistinctEvent]:
    """The events of a batch, each identity once."""
    told: dict[str, DistinctEvent] = {}
    for delivery in deliveries:
        for event in delivery.events:
            known = told.get(event.identity)
            told[event.identity] = (
                _merge(known, event) if known else DistinctEvent(event, event.event_time, delivery.body)
            )
    return [told[identity] for identity in sorted(told)]


def compare_with_inbox(connection: Connection, events: Sequence[DistinctEvent]) -> InboxDelta:
    rows = connection.execute(
        """
        SELECT identity, sequencer, event_time, made_at, queue = %(listing)s AS found, shape, asset_uri, etag, size
        FROM kfm.inbox WHERE identity = ANY(%(identities)s)
        """,
        {"identities": [one.event.identity for one in events], "listing": LISTING},
    )
    known = {row["identity"]: row for row in rows}
    again = [(one, known[one.event.identity]) for one in events if one.event.identity in known]
    return InboxDelta(
        new=[one for one in events if one.event.identity not in known],
        reordered=[
            one
            for one, row in again
            if _comparable_sequencer(one.event.sequencer) > _comparable_sequencer(row["sequencer"])
            or one.event.event_time > row["event_time"]
        ],
        made_earlier=[one for one, row in again if row["made_at"] is not None and one.made_at < row["made_at"]],
        from_listing=[one for one, row in again if row["found"]],
        collisions=sum(
            _collides(_content(one.event), tuple(row[name] for name in CONTENT_FIELDS)) for one, row in again
        ),
    )


def count_collisions(deliveries: "Sequence[Delivery]", events: Sequence[DistinctEvent]) -> int:
    """The same among messages that came together."""
    first = {one.event.identity: _content(one.event) for one in events}
    return sum(
        _collides(_content(event), first[event.identity]) for delivery in deliveries for event in delivery.events
    )


def assign_to_queue(connection: Connection, queue: str, events: Sequence[DistinctEvent]) -> list[DistinctEvent]:
    """Events that were only found in a bucket, and so were due for nobody, are the queue's from now on, as if they had
    come now; those of them that no run has begun with."""
    rows = connection.execute(
        """
        UPDATE kfm.inbox i SET queue = %(queue)s, ready_at = NULL, trace = told.trace, sent_at = told.sent_at,
            received_at = CASE WHEN state = 'received' THEN clock_timestamp() ELSE received_at END
        FROM unnest(%(identities)s::text[], %(traces)s::text[], %(sent)s::timestamptz[])
             AS told (identity, trace, sent_at)
        WHERE i.identity = told.identity AND queue = %(listing)s
        RETURNING i.identity, state
        """,
        {
            "identities": [one.event.identity for one in events],
            "traces": [one.event.trace for one in events],
            "sent": [one.event.sent_at for one in events],
            "queue": queue,
            "listing": LISTING,
        },
    ).fetchall()
    taken = {row["identity"] for row in rows if row["state"] == "received"}
    return [one for one in events if one.event.identity in taken]


def insert(connection: Connection, queue: str, new: Sequence[DistinctEvent]) -> list[DistinctEvent]:
    """Record them; the ones that nobody else has recorded meanwhile. Long lists travel faster in binary form (%b)."""
    columns: dict[str, list[object]] = {
        name: [getattr(told.event, name) for told in new]
        for name in ("identity", "key", "dataset", "shape", "asset_uri", "etag", "version_id", "size", "sequencer",
                     "event_time", "priority", "change", "message_group", "group_sequence", "partition", "data_time",
                     "trace", "sent_at")
    }  # fmt: skip
    rows = connection.execute(
        """
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
        """,
        {
            **columns,
            "made_at": [told.made_at for told in new],
            "body": [told.body for told in new],
            "queue": queue,
        },
    ).fetchall()
    fresh = {row["identity"] for row in rows}
    return [told for told in new if told.event.identity in fresh]


def update_positions(connection: Connection, events: Sequence[DistinctEvent]) -> set[str]:
    """Move known events to their later place and their earlier making; identities of those that are not the only event
    about their object. Alone in its object an event changes nothing by moving."""
    if not events:
        return set()
    once = {told.event.identity: told for told in events}
    rows = connection.execute(
        """
        UPDATE kfm.inbox i SET event_time = greatest(i.event_time, told.event_time),
            made_at = CASE WHEN i.made_at IS NOT NULL THEN least(i.made_at, told.made_at) END,
            sequencer = CASE WHEN rtrim(lower(told.sequencer), '0') COLLATE "C"
                                  > coalesce(rtrim(lower(i.sequencer), '0'), '') COLLATE "C"
                             THEN told.sequencer ELSE i.sequencer END
        FROM unnest(%(identities)s::text[], %(sequencers)s::text[], %(times)s::timestamptz[], %(made)s::timestamptz[])
             AS told (identity, sequencer, event_time, made_at)
        WHERE told.identity = i.identity
        RETURNING i.identity, EXISTS (
            SELECT FROM kfm.inbox o WHERE o.key = i.key AND o.asset_uri = i.asset_uri AND o.identity <> i.identity
        ) AS among_others
        """,
        {
            "identities": list(once),
            "sequencers": [told.event.sequencer for told in once.values()],
            "times": [told.event.event_time for told in once.values()],
            "made": [told.made_at for told in once.values()],
        },
    ).fetchall()
    return {row["identity"] for row in rows if row["among_others"]}


def _merge(known: DistinctEvent, event: IngestEvent) -> DistinctEvent:
    """The same event told twice: its last place in the order of writes, whichever was told first."""
    first = known.event
    sequencer = (
        first.sequencer
        if _comparable_sequencer(first.sequencer) >= _comparable_sequencer(event.sequencer)
        else event.sequencer
    )
    latest = replace(first, sequencer=sequencer, event_time=max(first.event_time, event.event_time))
    return DistinctEvent(latest, min(known.made_at, event.event_time), known.body)


def _content(event: IngestEvent) -> tuple[object, ...]:
    return tuple(getattr(event, name) for name in CONTENT_FIELDS)


def _collides(content: tuple[object, ...], first: tuple[object, ...]) -> bool:
    """Whether a FIFO producer has used a dedupe key twice: what came first counts, what comes now is dropped."""
    return content[0] == first[0] == FIFO_ENVELOPE and content != first


def _comparable_sequencer(sequencer: str | None) -> str:
    """Without trailing zeros, hexadecimal text compares as if the shorter one were padded with them."""
    return (sequencer or "").lower().rstrip("0")
