"""The archive: each event's message as it came, kept in the store before any work on it starts.

Replays and audits then depend on no queue's retention and on no database's backup.
"""

from kfm_pipelines.services import Services
from kfm_pipelines.stores.layout import archived_event


def archive_events(services: Services, key: str, *, recheck_store: bool = False) -> int:
    """Write the messages of the key's events that are not in the archive yet; once per identity. With `again` those
    that are not in the store, whatever the log says: it may be another store, or have lost them."""
    rows = services.database.fetch(
        """
        SELECT identity, body FROM kfm.inbox
        WHERE key IN (%(key)s, (SELECT inputs_from FROM kfm.keys WHERE key = %(key)s))
          AND (archived_at IS NULL OR %(again)s) ORDER BY identity
        """,
        {"key": key, "again": recheck_store},
    )
    for row in rows:
        path = archived_event(row["identity"])
        if not services.store.exists(path):
            services.store.write(path, row["body"].encode())
    if rows:
        services.database.execute(
            "UPDATE kfm.inbox SET archived_at = clock_timestamp() WHERE identity = ANY(%(identities)s)",
            {"identities": [row["identity"] for row in rows]},
        )
    return len(rows)
