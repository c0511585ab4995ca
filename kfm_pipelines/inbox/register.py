"""Registering what is in a bucket: events that no notification told of, recorded as if one had, but due only when
somebody asks for their keys.

A notification of the same object, before or after, is the same event; after, it makes its key due as it always does.
"""

from collections.abc import Sequence

from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox import deduplicate
from kfm_pipelines.inbox.record import advance_streams
from kfm_pipelines.state import inbox
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.state.keys import LOCK_WITH_DEPENDENTS
from kfm_pipelines.watermarks.due import make_due

REASON = "registered for a replay"


def register_events(
    database: Database, datasets: Datasets, events: Sequence[tuple[IngestEvent, str]], actor: str
) -> int:
    """Record the events, whose keys are there, each with what was read of it; how many were new. Streams advance by
    them as by any other, and a known one may be found to be made earlier. What is new is released, also if it turns out
    late only one day: whoever registers it wants it counted."""
    with database.transaction() as connection:
        once = deduplicate.distinct_events([Delivery(body, (event,)) for event, body in events])
        news = deduplicate.compare_with_inbox(connection, once)
        connection.execute(LOCK_WITH_DEPENDENTS, {"keys": news.keys})
        fresh = deduplicate.insert(connection, inbox.LISTING, news.new)
        raced = [one for one in news.new if one not in fresh]  # a notification was quicker
        again = [*news.reordered, *news.made_earlier, *raced]
        among_others = deduplicate.update_positions(connection, again)
        _release(connection, datasets, [one.event for one in fresh], actor)
        advance_streams(connection, datasets, [one.event for one in once], fresh, [*news.made_earlier, *raced], None)
        moved = [one.event for one in (*news.reordered, *raced) if one.event.identity in among_others]
        make_due(connection, datasets, [], moved, None)
    return len(fresh)


def _release(connection: Connection, datasets: Datasets, events: Sequence[IngestEvent], actor: str) -> None:
    """Before anybody knows whether they are late. They wait for whoever asks for their keys."""
    connection.execute(
        """
        INSERT INTO kfm.late (identity, key, dataset, rule, state, is_late, changed_by, reason)
        SELECT n.*, 'released', false, %(actor)s, %(reason)s
        FROM unnest(%(identities)s::text[], %(keys)s::text[], %(datasets)s::text[], %(rules)s::text[]) AS n
        """,
        {
            "identities": [event.identity for event in events],
            "keys": [event.key for event in events],
            "datasets": [event.dataset for event in events],
            "rules": [datasets[event.dataset].late for event in events],
            "actor": actor,
            "reason": REASON,
        },
    )
    connection.execute(
        "UPDATE kfm.inbox SET ready_at = 'infinity' WHERE identity = ANY(%(identities)s)",
        {"identities": [event.identity for event in events]},
    )
