"""Registering what is in a bucket: events that no notification told of, recorded as if one had, but due only when
somebody asks for their keys.

A notification of the same object, before or after, is the same event; after, it makes its key due as it always does.
"""

from collections.abc import Sequence

from kfm_pipelines.datasets import Datasets
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.state import late, streams, tellings
from kfm_pipelines.state.claims import LOCK_NAMED
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery

REASON = "registered for a replay"


def register(database: Database, datasets: Datasets, told: Sequence[tuple[IngestEvent, str]], actor: str) -> int:
    """Record the events, whose keys are there, each with what was read of it; how many were new. Streams advance by
    them as by any other. What is late is released at once: whoever registers it wants it counted."""
    with database.transaction() as connection:
        news = tellings.what_is_new(connection, tellings.told_once([Delivery(body, (event,)) for event, body in told]))
        connection.execute(LOCK_NAMED, {"keys": [one.event.key for one in news.new]})
        fresh = tellings.insert(connection, tellings.LISTING, news.new)
        if not fresh:
            return 0
        identities = [one.event.identity for one in fresh]
        events = [one.event for one in fresh]
        streams.hold_streams(connection, (event.dataset for event in events))
        streams.advance(connection, datasets, events, identities, None)
        late.judge(connection, datasets, identities)
        connection.execute(
            """
            UPDATE kfm.late SET state = 'released', changed_by = %(actor)s, reason = %(reason)s,
                changed_at = clock_timestamp()
            WHERE identity = ANY(%(identities)s) AND state = 'held'
            """,
            {"identities": identities, "actor": actor, "reason": REASON},
        )
        connection.execute(
            "UPDATE kfm.inbox SET ready_at = 'infinity' WHERE identity = ANY(%(identities)s)",
            {"identities": identities},
        )
    return len(fresh)
