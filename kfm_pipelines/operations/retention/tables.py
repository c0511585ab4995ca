"""What of the gates' records is old enough to be forgotten: findings, and the files that verdicts were written into."""

from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.state.database import Database


@dataclass(frozen=True, slots=True)
class ExpiredVerdict:
    dataset: str
    key: str
    txn: int
    at: datetime


def delete_old_findings(database: Database, *, days: int, limit: int) -> int:
    """Remove findings that are older, the oldest first; how many. A key that is still wrong keeps what scans found: it
    is not written down again while it stays the same."""
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
    """Verdicts that are older, from where the last purge of reports ended; the oldest first. Those given in the same
    instant come together, so that the next one can begin after it."""
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
