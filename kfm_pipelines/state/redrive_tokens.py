"""Redriven messages on their way: each carries a token, so that its arrival is noted, and noted once.

Belongs here: what the inbox has to know about a redrive while it records. Does not: planning or sending one.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from kfm_pipelines.state import dead_letters
from kfm_pipelines.state.database import Connection

if TYPE_CHECKING:
    from kfm_pipelines.state.inbox import Delivery


def first_arrivals(connection: Connection, deliveries: "Sequence[Delivery]") -> "list[Delivery]":
    """The deliveries without those of a redriven message that has already arrived. The others of ours have the place
    in their group that they had at first: SQS has numbered them anew, but they are no newer than they were."""
    tokens = [delivery.token for delivery in deliveries if delivery.token]
    if not tokens:
        return list(deliveries)
    rows = connection.execute(
        """
        SELECT i.token, i.state IN ('arrived', 'succeeded', 'failed') AS arrived, l.group_sequence
        FROM kfm.redrive_items i JOIN kfm.dead_letters l ON l.id = i.letter
        WHERE i.token = ANY(%(tokens)s) ORDER BY i.token FOR UPDATE OF i
        """,
        {"tokens": tokens},
    ).fetchall()
    # A token we never gave out marks nothing: whoever wrote it there, two such messages are two.
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


def _with_original_sequence(delivery: "Delivery", sequence: Decimal | None) -> "Delivery":
    if sequence is None:
        return delivery
    events = tuple(replace(event, group_sequence=int(sequence)) for event in delivery.events)
    return replace(delivery, events=events)


def record_arrivals(connection: Connection, deliveries: "Sequence[Delivery]") -> None:
    """What became of redriven messages: refused again, or work for these keys."""
    for delivery in sorted((one for one in deliveries if one.token), key=lambda one: one.token or ""):
        _record_arrival(connection, delivery)


def _record_arrival(connection: Connection, delivery: "Delivery") -> None:
    refused = str(delivery.refusal.error) if delivery.refusal else ""
    row = connection.execute(
        """
        UPDATE kfm.redrive_items
        SET state = CASE WHEN %(refused)s = '' THEN 'arrived' ELSE 'failed' END, outcome = left(%(refused)s, 1000),
            keys = %(keys)s, changed_at = clock_timestamp()
        WHERE token = %(token)s AND state IN ('sending', 'sent') RETURNING letter, redrive
        """,
        {"token": delivery.token, "refused": refused, "keys": sorted({event.key for event in delivery.events})},
    ).fetchone()
    if row and not refused:
        detail = {"redrive": row["redrive"], "events": [event.identity for event in delivery.events]}
        dead_letters.record_move(connection, [row["letter"]], "recorded", detail)
