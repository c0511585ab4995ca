"""What the log says is somebody's: the objects of publications that are under way or stand, and the work folders of
transactions that are open.

Whoever publishes lets nobody collect until its transaction ends; whoever collects does so alone. A publication waits
for a collector a moment and holds nothing else then; a collector holds nothing but this: there is no deadlock.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from kfm_pipelines.state.database import IDLE_IN_TRANSACTION_SECONDS, Connection, Database, advisory_lock

_COLLECTION_LOCK = {"seat": "kfm collecting"}
# Publications queue up behind a collector that waits, so it does not wait for long.
LONGEST_WAIT_SECONDS = 1.0
_MARGIN = {"margin": 5 * IDLE_IN_TRANSACTION_SECONDS}


@dataclass(frozen=True, slots=True)
class RetainedRelease:
    """The objects of one release, by digest."""

    key: str
    dataset: str
    txn: int
    content: str
    documents: Mapping[str, str]  # by the names they were staged under
    is_open: bool

    @property
    def digests(self) -> set[str]:
        return {self.content, *self.documents.values()}


def retained_releases(connection: Connection, *, since: datetime | None = None) -> list[RetainedRelease]:
    """Every release that may still be published, is a revision, or was the last to be applied to its key: a revision
    that is restored gets new documents. Not those whose content was withdrawn: an exemption alone had let it out.
    `since` leaves out what was staged before, and is quick however long the log is."""
    rows = connection.execute(
        """
        WITH released AS (
            SELECT w.key, w.txn, w.detail,
                   (SELECT e.outcome FROM kfm.wal e WHERE e.key = w.key AND e.txn = w.txn AND e.outcome IS NOT NULL)
            FROM kfm.wal w WHERE w.step = 'stage_atomic' AND (%(since)s::timestamptz IS NULL OR w.at >= %(since)s)
        ), last AS (SELECT key, max(txn) AS txn FROM released WHERE outcome = 'APPLIED' GROUP BY key)
        SELECT s.key, k.dataset, s.txn, s.detail, s.outcome IS NULL AS is_open
        FROM released s JOIN kfm.keys k ON k.key = s.key LEFT JOIN last l ON l.key = s.key
        WHERE s.outcome IS NULL OR s.txn = l.txn OR (
            EXISTS (SELECT FROM kfm.revisions r WHERE r.key = s.key AND r.txn = s.txn)
            AND NOT EXISTS (SELECT FROM kfm.audit a WHERE a.key = s.key AND a.action = 'exempted'
                            AND a.digest = s.detail->>'content_hash'))
        """,
        {"since": since},
    )
    return [_retained_release(row) for row in rows]


def open_transactions(connection: Connection) -> set[tuple[str, int]]:
    """Key and transaction of whatever is not over."""
    rows = connection.execute(
        """
        SELECT key, epoch AS txn FROM kfm.keys WHERE owner IS NOT NULL
        UNION
        SELECT key, txn FROM (SELECT DISTINCT ON (key) key, txn, outcome FROM kfm.wal ORDER BY key, id DESC) last
        WHERE outcome IS NULL
        """
    )
    return {(row["key"], row["txn"]) for row in rows}


def newest_epochs(connection: Connection) -> dict[str, int]:
    return {row["key"]: row["epoch"] for row in connection.execute("SELECT key, epoch FROM kfm.keys")}


def margin_before_now(connection: Connection) -> datetime:
    """Everything that was staged earlier is committed and can be seen, or will never be: Postgres ends a transaction
    that does nothing for much less than this."""
    [row] = connection.execute("SELECT clock_timestamp() - make_interval(secs => %(margin)s) AS at", _MARGIN).fetchall()
    return cast(datetime, row["at"])


def block_collection(connection: Connection) -> None:
    """Until the transaction ends no object is removed."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended(%(seat)s, 0))", _COLLECTION_LOCK)


@contextmanager
def lock_for_collection(database: Database) -> Iterator[Connection | None]:
    """Be the only one who keeps or removes objects; None when publications go on all the time."""
    with database.transaction() as connection:
        yield connection if advisory_lock(connection, _COLLECTION_LOCK["seat"], LONGEST_WAIT_SECONDS) else None


def _retained_release(row: Mapping[str, Any]) -> RetainedRelease:
    detail = row["detail"]
    return RetainedRelease(
        key=row["key"],
        dataset=row["dataset"],
        txn=row["txn"],
        content=detail["content_hash"],
        documents={**detail.get("documents", {}), **detail.get("records", {}), **detail.get("shared", {})},
        is_open=row["is_open"],
    )
