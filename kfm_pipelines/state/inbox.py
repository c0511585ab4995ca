"""The inbox: events, each recorded once by its identity, and the tokens of redriven messages that arrive in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state import dead_letters
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.dead_letters import Refusal

LISTING = "s3-listing"  # instead of a queue's name, for objects found by listing a bucket


@dataclass(frozen=True, slots=True)
class Delivery:
    """A parsed queue message: its events, or why it or one of its records was refused. `token` marks a redrive."""

    body: str
    events: tuple[IngestEvent, ...] = ()
    refusal: Refusal | None = None
    token: str | None = None
    unwanted: int = 0  # notices of a provider that no dataset takes

    @property
    def notices(self) -> list[str]:
        """The identity of each notice, as often as the message has it, whatever the number of keys it is work for."""
        first: dict[str, str] = {}
        for event in self.events:
            first.setdefault(event.notice_identity, event.identity)
        return [event.notice_identity for event in self.events if event.identity == first[event.notice_identity]]


def events_of_keys(connection: Connection, keys: Sequence[str]) -> dict[str, list[IngestEvent]]:
    """Returns each key's own events and those of the key it takes inputs from, without those held in the late lane."""
    query = """
        SELECT k.key AS asked, i.identity, i.key, i.dataset, i.shape, i.asset_uri, i.etag, i.version_id, i.size,
               i.sequencer, i.event_time, i.priority, i.change, i.partition, i.message_group, i.group_sequence,
               k.window_start, k.window_end, coalesce(l.is_late, false) AS late
        FROM kfm.keys k JOIN kfm.inbox i ON i.key = ANY(ARRAY[k.key, k.inputs_from])
        LEFT JOIN kfm.late l ON l.identity = i.identity
        WHERE k.key = ANY(%(keys)s) AND l.state IS DISTINCT FROM 'held' ORDER BY i.identity
    """
    rows = connection.execute(query, {"keys": list(keys)})
    events: dict[str, list[IngestEvent]] = {key: [] for key in keys}
    for row in rows:
        events[row.pop("asked")].append(_event(row))
    return events


def events_of(connection: Connection, key: str) -> list[IngestEvent]:
    return events_of_keys(connection, [key])[key]


def known_identities(database: Database, identities: Sequence[str]) -> set[str]:
    query = "SELECT identity FROM kfm.inbox WHERE identity = ANY(%(identities)s)"
    rows = database.fetch(query, {"identities": list(identities)})
    return {row["identity"] for row in rows}


def recorded_uris(database: Database, keys: Sequence[str], uris: Sequence[str]) -> set[str]:
    """Returns which of these objects an event of one of these keys has named."""
    query = "SELECT DISTINCT asset_uri FROM kfm.inbox WHERE key = ANY(%(keys)s) AND asset_uri = ANY(%(uris)s)"
    rows = database.fetch(query, {"keys": list(keys), "uris": list(uris)})
    return {row["asset_uri"] for row in rows}


def _event(row: dict[str, Any]) -> IngestEvent:
    scheme, _, place = row["asset_uri"].partition("://")
    bucket, _, object_key = place.partition("/")
    sequence = None if row["group_sequence"] is None else int(row["group_sequence"])
    values = {name: value for name, value in row.items() if name != "asset_uri"}
    address = {"scheme": scheme, "bucket": bucket, "object_key": object_key}
    return IngestEvent(**{**values, **address, "group_sequence": sequence})


def first_arrivals(connection: Connection, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Returns the deliveries without redriven messages that have arrived before. Redriven messages keep their original
    sequence in the group: SQS numbers them again, but they are no newer."""
    tokens = [delivery.token for delivery in deliveries if delivery.token]
    if not tokens:
        return list(deliveries)
    query = """
        SELECT i.token, i.state IN ('arrived', 'succeeded', 'failed') AS arrived, l.group_sequence
        FROM kfm.redrive_items i JOIN kfm.dead_letters l ON l.id = i.letter
        WHERE i.token = ANY(%(tokens)s) ORDER BY i.token FOR UPDATE OF i
    """
    rows = connection.execute(query, {"tokens": tokens}).fetchall()
    # A token that we did not issue means nothing: two messages with it count as two.
    ours = {row["token"]: row["group_sequence"] for row in rows}
    arrived = {row["token"] for row in rows if row["arrived"]}
    counted = []
    for delivery in deliveries:
        if delivery.token is None or delivery.token not in ours:
            counted.append(delivery)
        elif delivery.token not in arrived:
            counted.append(_with_original_sequence(delivery, ours[delivery.token]))
            arrived.add(delivery.token)
    return counted


def _with_original_sequence(delivery: Delivery, sequence: Decimal | None) -> Delivery:
    if sequence is None:
        return delivery
    events = tuple(replace(event, group_sequence=int(sequence)) for event in delivery.events)
    return replace(delivery, events=events)


def record_arrivals(connection: Connection, deliveries: Sequence[Delivery]) -> None:
    """Records for each redriven message whether it was refused again, or which keys it is work for."""
    for delivery in sorted((one for one in deliveries if one.token), key=lambda one: one.token or ""):
        _record_arrival(connection, delivery)


def _record_arrival(connection: Connection, delivery: Delivery) -> None:
    refused = str(delivery.refusal.error) if delivery.refusal else ""
    statement = """
        UPDATE kfm.redrive_items
        SET state = CASE WHEN %(refused)s = '' THEN 'arrived' ELSE 'failed' END, outcome = left(%(refused)s, 1000),
            keys = %(keys)s, changed_at = clock_timestamp()
        WHERE token = %(token)s AND state IN ('sending', 'sent') RETURNING letter, redrive
    """
    parameters = {"token": delivery.token, "refused": refused, "keys": sorted({event.key for event in delivery.events})}
    row = connection.execute(statement, parameters).fetchone()
    if row and not refused:
        detail = {"redrive": row["redrive"], "events": [event.identity for event in delivery.events]}
        dead_letters.record_move(connection, [row["letter"]], "recorded", detail)
