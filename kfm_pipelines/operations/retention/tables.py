"""SQL of the purge: events, payloads, findings and verdicts that have been kept long enough."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.state.database import Connection, Database


@dataclass(frozen=True, slots=True)
class ExpiredVerdict:
    dataset: str
    key: str
    txn: int
    at: datetime


def keys_with_old_events(database: Database, *, days: int, page_size: int) -> Iterator[str]:
    """Yields every key with an old event and with two events about one object, in order."""
    page = [""]
    while page:
        rows = database.fetch(
            """
            SELECT key FROM kfm.inbox WHERE key > %(after)s GROUP BY key
            HAVING count(*) > count(DISTINCT asset_uri)
               AND min(received_at) < clock_timestamp() - make_interval(days => %(days)s)
            ORDER BY key LIMIT %(limit)s
            """,
            {"after": page[-1], "days": days, "limit": page_size},
        )
        page = [row["key"] for row in rows]
        yield from page


def delete_old_events(connection: Connection, candidates: Iterable[str], *, days: int) -> int:
    """Deletes those of the events that succeeded, are archived and are old enough."""
    rows = connection.execute(
        """
        SELECT identity FROM kfm.inbox WHERE identity = ANY(%(candidates)s) AND state = 'succeeded'
          AND archived_at IS NOT NULL AND received_at < clock_timestamp() - make_interval(days => %(days)s)
        """,
        {"candidates": list(candidates), "days": days},
    ).fetchall()
    identities = {"identities": [row["identity"] for row in rows]}
    connection.execute("DELETE FROM kfm.late WHERE identity = ANY(%(identities)s)", identities)
    return connection.execute("DELETE FROM kfm.inbox WHERE identity = ANY(%(identities)s)", identities).rowcount


def delete_old_payloads(database: Database, *, kept: int) -> int:
    """Empties the bodies of all but the last closed letters; the letters stay. Quarantined ones keep their bodies."""
    return database.execute(
        """
        UPDATE kfm.dead_letters SET body = '' WHERE body <> '' AND id IN (
            SELECT id FROM kfm.dead_letters WHERE state = 'closed' AND body <> '' ORDER BY id DESC OFFSET %(kept)s)
        """,
        {"kept": kept},
    )


def delete_old_findings(database: Database, *, days: int, limit: int) -> int:
    """Keeps scan findings of keys with errors, because a scan does not record them again."""
    return database.execute(
        """
        DELETE FROM kfm.qa_findings WHERE id IN (
            SELECT f.id FROM kfm.qa_findings f
            WHERE f.at < clock_timestamp() - make_interval(days => %(days)s) AND NOT (
                f.txn IS NULL AND EXISTS (SELECT FROM kfm.scanned s WHERE s.key = f.key AND s.errors > 0))
            ORDER BY f.id LIMIT %(limit)s)
        """,
        {"days": days, "limit": limit},
    )


def expired_verdicts(database: Database, *, days: int, limit: int) -> list[ExpiredVerdict]:
    """Starts where the last purge ended. Verdicts of the same instant are never split."""
    rows = database.fetch(
        """
        SELECT k.dataset, v.key, v.txn, v.at FROM kfm.verdicts v JOIN kfm.keys k ON k.key = v.key
        WHERE v.at > coalesce((SELECT upto FROM kfm.purge_marks WHERE what = 'reports'), '-infinity')
          AND v.at < clock_timestamp() - make_interval(days => %(days)s)
        ORDER BY v.at FETCH FIRST %(limit)s ROWS WITH TIES
        """,
        {"days": days, "limit": limit},
    )
    return [ExpiredVerdict(**row) for row in rows]


def record_reports_purged(database: Database, upto: datetime) -> None:
    database.execute(
        """
        INSERT INTO kfm.purge_marks (what, upto) VALUES ('reports', %(upto)s)
        ON CONFLICT (what) DO UPDATE SET upto = excluded.upto
        """,
        {"upto": upto},
    )
