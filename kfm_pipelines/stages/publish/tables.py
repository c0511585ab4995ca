"""The database side of publishing: the locked key, what is committed with its swap, and what must be kept.

A publication blocks garbage collection until its transaction ends, and a collector excludes publications. Either waits
for the other before it takes any further lock, so there is no deadlock.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from kfm_pipelines.catalog.collections import tables as collection_tables
from kfm_pipelines.catalog.collections.pages import mark_page_stale
from kfm_pipelines.catalog.collections.tables import WithdrawnArtifacts
from kfm_pipelines.errors import DatasetKilled, Fenced
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.state import kill_switch, wal
from kfm_pipelines.state.database import IDLE_IN_TRANSACTION_SECONDS, Connection, Database, advisory_lock
from kfm_pipelines.state.keys import Claim, fenced_error, wrong_dataset_reason
from kfm_pipelines.state.revisions import (
    Revision,
    mark_collection_changed,
    record_in_ledger,
    record_processed,
    record_revision,
)
from kfm_pipelines.state.transactions import settle
from kfm_pipelines.state.wal import Entry, Step

_COLLECTION_LOCK = {"seat": "kfm collecting"}
# Publications queue up behind a waiting collector, so it does not wait for long.
LONGEST_WAIT_SECONDS = 1.0
_MARGIN = {"margin": 5 * IDLE_IN_TRANSACTION_SECONDS}


class Publication:
    """A key locked for its pointer swap; no other worker can claim it before the transaction ends."""

    def __init__(self, connection: Connection, claim: Claim, dataset: str) -> None:
        self._connection = connection
        self._claim = claim
        self._dataset = dataset

    def refuse_if_killed(self) -> None:
        """Call right before the swap: uploads may take minutes. An answer also proves that the locks are still held."""
        kill_switch.refuse_if_killed(self._connection, self._dataset)

    def commit(
        self,
        revision: Revision,
        manifest_hash: str | None,
        attestation_hash: str | None,
        *,
        txn: int,
        note: str | None = None,
    ) -> None:
        record_revision(self._connection, revision)
        record_in_ledger(self._connection, self._dataset, revision, manifest_hash, attestation_hash)
        record_processed(self._connection, self._dataset, self._claim.key, self._inputs(txn))
        detail = {"revision": revision.revision} | ({"reason": note} if note else {})
        wal.append(self._connection, self._claim, Step.COMMIT, detail, txn=txn)
        mark_page_stale(self._connection, self._dataset, self._claim.key)
        mark_collection_changed(self._connection, self._dataset)
        settle(self._connection, self._claim, {"outcome": "APPLIED", "revision": revision.revision})

    def earlier_revisions(self, revision: int, withdrawn: Sequence[str]) -> list[int]:
        """Returns the revisions before this one that are not withdrawn."""
        rows = self._connection.execute(
            """
            SELECT revision FROM kfm.revisions
            WHERE key = %(key)s AND revision < %(revision)s AND NOT content_hash = ANY(%(withdrawn)s) ORDER BY revision
            """,
            {"key": self._claim.key, "revision": revision, "withdrawn": list(withdrawn)},
        )
        return [row["revision"] for row in rows]

    def withdrawn_contents(self, content_hash: str) -> list[str]:
        return collection_tables.find_withdrawn_contents(self._connection, self._claim.key, content_hash)

    def traces_of(self, contents: Sequence[str]) -> WithdrawnArtifacts:
        return collection_tables.find_withdrawn_artifacts(self._connection, self._claim.key, contents)

    def hold_snapshots(self) -> None:
        """Waits for anyone writing the snapshot or the graph; later writers see what is committed here."""
        collection_tables.lock_snapshot(self._connection, self._dataset)
        collection_tables.lock_graph(self._connection)

    def forget_snapshot(self) -> None:
        collection_tables.delete_mark(self._connection, self._dataset, collection_tables.ITEMS_SNAPSHOT)

    def forget_graph(self) -> None:
        collection_tables.delete_graph_marks(self._connection)

    def intended_at(self, revision: int, txn: int) -> datetime:
        """Returns when this revision was first intended to be published; restoring it does not change that."""
        [row] = self._connection.execute(
            """
            SELECT at FROM kfm.wal WHERE key = %(key)s AND step = 'publish' AND txn = coalesce(
                (SELECT txn FROM kfm.revisions WHERE key = %(key)s AND revision = %(revision)s), %(txn)s)
            """,
            {"key": self._claim.key, "revision": revision, "txn": txn},
        ).fetchall()
        at: datetime = row["at"]
        return at

    def current_release(self) -> Entry | None:
        """Returns the intent by which the current revision was published, if there is one."""
        row = self._connection.execute(
            "SELECT txn FROM kfm.revisions WHERE key = %(key)s ORDER BY revision DESC LIMIT 1", {"key": self._claim.key}
        ).fetchone()
        return wal.entry_of(self._connection, self._claim.key, row["txn"], Step.PUBLISH) if row else None

    def _inputs(self, txn: int) -> list[Mapping[str, Any]]:
        """Returns the objects of this transaction with the ETags found when they were fetched."""
        begun = wal.entry_of(self._connection, self._claim.key, txn, Step.BEGIN)
        computed = wal.entry_of(self._connection, self._claim.key, txn, Step.COMPUTE)
        found = computed.detail.get("etags", {}) if computed else {}
        inputs = begun.detail.get("inputs", []) if begun else []
        return [{**one, "etag": found.get(one["uri"], one["etag"])} for one in inputs]


@contextmanager
def open_publication(database: Database, claim: Claim, dataset: str, *, visible: bool = False) -> Iterator[Publication]:
    """Holds the key's row and the dataset's barrier during the swap, so that a takeover or a kill either waits for the
    swap or prevents it. A swap that is `visible` to readers is completed even if the dataset is killed."""
    with database.transaction() as connection:
        block_collection(connection)
        held = kill_switch.hold_barrier(connection, dataset)
        if not visible:
            kill_switch.refuse_if_killed(connection, dataset)
            if not held:
                raise DatasetKilled(f"{dataset} was killed a moment ago")
        row = connection.execute(
            "SELECT epoch, dataset FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": claim.key}
        ).fetchone()
        if row is None or row["epoch"] != claim.epoch:
            raise fenced_error(claim)
        if row["dataset"] != dataset:
            raise Fenced(wrong_dataset_reason(claim.key, row["dataset"], dataset))
        yield Publication(connection, claim, dataset)


def retained_releases(connection: Connection, *, since: datetime | None = None) -> list[Release]:
    """Returns the releases whose objects must be kept: each one that may still be published, is a revision, or was the
    last applied to its key (a restored revision gets new documents), except those whose content was withdrawn with its
    exemption. `since` leaves out what was staged earlier and keeps the query fast however long the log is."""
    rows = connection.execute(
        """
        WITH released AS (
            SELECT w.key, w.txn, w.detail,
                   (SELECT e.outcome FROM kfm.wal e WHERE e.key = w.key AND e.txn = w.txn AND e.outcome IS NOT NULL)
            FROM kfm.wal w WHERE w.step = 'stage_atomic' AND (%(since)s::timestamptz IS NULL OR w.at >= %(since)s)
        ), last AS (SELECT key, max(txn) AS txn FROM released WHERE outcome = 'APPLIED' GROUP BY key)
        SELECT s.detail FROM released s LEFT JOIN last l ON l.key = s.key
        WHERE s.outcome IS NULL OR s.txn = l.txn OR (
            EXISTS (SELECT FROM kfm.revisions r WHERE r.key = s.key AND r.txn = s.txn)
            AND NOT EXISTS (SELECT FROM kfm.audit a WHERE a.key = s.key AND a.action = 'exempted'
                            AND a.digest = s.detail->>'content_hash'))
        """,
        {"since": since},
    )
    return [Release.from_values(row["detail"]) for row in rows]


def open_transactions(connection: Connection) -> set[tuple[str, int]]:
    """Returns key and transaction of everything that has not ended."""
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
    """Returns a time before which everything staged is committed and visible, or never will be, because Postgres ends
    idle transactions much sooner."""
    [row] = connection.execute("SELECT clock_timestamp() - make_interval(secs => %(margin)s) AS at", _MARGIN).fetchall()
    return cast(datetime, row["at"])


def block_collection(connection: Connection) -> None:
    """Keeps garbage collection from removing objects until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended(%(seat)s, 0))", _COLLECTION_LOCK)


@contextmanager
def lock_for_collection(database: Database) -> Iterator[Connection | None]:
    """Excludes publications while objects are removed; yields None when they leave no gap."""
    with database.transaction() as connection:
        yield connection if advisory_lock(connection, _COLLECTION_LOCK["seat"], LONGEST_WAIT_SECONDS) else None
