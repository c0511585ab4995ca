"""The inbox: rows of events, each recorded once by its identity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.dead_letters import Refusal

LISTING = "s3-listing"  # in the place of a queue's name: found in a bucket, not told by anybody


@dataclass(frozen=True, slots=True)
class Delivery:
    """One queue message, read: its events, or why it, or one of its records, was refused. `token` marks a redrive."""

    body: str
    events: tuple[IngestEvent, ...] = ()
    refusal: Refusal | None = None
    token: str | None = None


def events_of(connection: Connection, key: str) -> list[IngestEvent]:
    """The events that go into a key: its own, and those of the key it takes its inputs from. What is held is no input
    yet."""
    rows = connection.execute(
        """
        SELECT i.identity, i.key, i.dataset, i.shape, i.asset_uri, i.etag, i.version_id, i.size, i.sequencer,
               i.event_time, i.priority, i.change, i.partition, i.message_group, i.group_sequence,
               k.window_start, k.window_end, coalesce(l.is_late, false) AS late
        FROM kfm.keys k JOIN kfm.inbox i ON i.key = ANY(ARRAY[k.key, k.inputs_from])
        LEFT JOIN kfm.late l ON l.identity = i.identity
        WHERE k.key = %(key)s AND l.state IS DISTINCT FROM 'held' ORDER BY i.identity
        """,
        {"key": key},
    )
    return [_event(row) for row in rows]


def known_identities(database: Database, identities: Sequence[str]) -> set[str]:
    rows = database.fetch(
        "SELECT identity FROM kfm.inbox WHERE identity = ANY(%(identities)s)", {"identities": list(identities)}
    )
    return {row["identity"] for row in rows}


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
        partition=row["partition"],
        late=row["late"],
        message_group=row["message_group"],
        group_sequence=None if row["group_sequence"] is None else int(row["group_sequence"]),
    )
