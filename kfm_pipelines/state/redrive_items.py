"""Redriven messages on their way: each carries a token, so that its arrival is noted, and noted once.

Belongs here: what the inbox has to know about a redrive while it records. Does not: planning or sending one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm_pipelines.state import dead_letters

if TYPE_CHECKING:
    from psycopg import Connection

    from kfm_pipelines.state.inbox import Delivery


def without_repeats(connection: "Connection[dict[str, Any]]", deliveries: "Sequence[Delivery]") -> "list[Delivery]":
    """The deliveries without those of a redriven message that has already arrived."""
    tokens = [delivery.token for delivery in deliveries if delivery.token]
    if not tokens:
        return list(deliveries)
    rows = connection.execute(
        """
        SELECT token, state IN ('arrived', 'succeeded', 'failed') AS arrived FROM kfm.redrive_items
        WHERE token = ANY(%(tokens)s) ORDER BY token FOR UPDATE
        """,
        {"tokens": tokens},
    ).fetchall()
    # A token we never gave out marks nothing: whoever wrote it there, two such messages are two.
    ours: set[str | None] = {row["token"] for row in rows}
    arrived: set[str | None] = {row["token"] for row in rows if row["arrived"]}
    counted = []
    for delivery in deliveries:
        if delivery.token not in arrived:
            counted.append(delivery)
            arrived |= {delivery.token} & ours
    return counted


def note_arrivals(connection: "Connection[dict[str, Any]]", deliveries: "Sequence[Delivery]") -> None:
    """What became of redriven messages: refused again, or work for these keys."""
    for delivery in sorted((one for one in deliveries if one.token), key=lambda one: one.token or ""):
        _note_arrival(connection, delivery)


def _note_arrival(connection: "Connection[dict[str, Any]]", delivery: "Delivery") -> None:
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
        dead_letters.note(connection, [row["letter"]], "recorded", detail)
