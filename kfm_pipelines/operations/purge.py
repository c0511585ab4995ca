"""Purge: forget what has been kept long enough, and nothing that anything still depends on.

Of each object the event that counts stays for ever, since its key is computed from it; so does every removal. What goes
are events that newer ones replaced, older than the backfill window, and the payloads of old settled dead letters.
"""

from dataclasses import dataclass

from kfm_pipelines.events import newest_per_object
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.inbox import events_of

KEYS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Purged:
    events: int
    payloads: int


def purge(workshop: Workshop) -> Purged:
    return Purged(events=_purge_events(workshop), payloads=_purge_payloads(workshop))


def _purge_events(workshop: Workshop) -> int:
    rows = workshop.database.fetch(
        """
        SELECT key FROM kfm.inbox GROUP BY key, asset_uri
        HAVING count(*) > 1 AND min(received_at) < clock_timestamp() - make_interval(days => %(days)s)
        ORDER BY min(received_at) LIMIT %(limit)s
        """,
        {"days": workshop.settings.inbox_days, "limit": KEYS_AT_ONCE},
    )
    return sum(_purge_key(workshop, key) for key in {row["key"] for row in rows})


def _purge_key(workshop: Workshop, key: str) -> int:
    with workshop.database.transaction() as connection:
        connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": key})
        events = events_of(connection, key)
        counting = {event.identity for event in newest_per_object(events)}
        replaced = [event.identity for event in events if event.change == "created" and event.identity not in counting]
        return connection.execute(
            """
            DELETE FROM kfm.inbox WHERE identity = ANY(%(replaced)s) AND state = 'succeeded'
              AND archived_at IS NOT NULL AND received_at < clock_timestamp() - make_interval(days => %(days)s)
            """,
            {"replaced": replaced, "days": workshop.settings.inbox_days},
        ).rowcount


def _purge_payloads(workshop: Workshop) -> int:
    """The last so many closed letters keep their message; of older ones the record stays. Quarantine keeps all."""
    return workshop.database.execute(
        """
        UPDATE kfm.dead_letters SET body = '' WHERE body <> '' AND id IN (
            SELECT id FROM kfm.dead_letters WHERE state = 'closed' AND body <> '' ORDER BY id DESC OFFSET %(kept)s)
        """,
        {"kept": workshop.settings.payloads_kept},
    )
