"""A key locked for its pointer swap, and what is committed with it: one database transaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from kfm_pipelines.catalog.collections import tables
from kfm_pipelines.catalog.collections.pages import mark_page_stale
from kfm_pipelines.catalog.collections.tables import WithdrawnArtifacts
from kfm_pipelines.errors import DatasetKilled, Fenced
from kfm_pipelines.stages.publish import gc_roots
from kfm_pipelines.state import kill_switch, revisions, wal
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.ingest_state import record_processed
from kfm_pipelines.state.keys import Claim, fenced_error, wrong_dataset_reason
from kfm_pipelines.state.revisions import RecordDigests, Revision, mark_collection_changed, record_revision
from kfm_pipelines.state.transactions import settle
from kfm_pipelines.state.wal import Entry, Step


class Publication:
    """A key locked for its pointer swap; nobody can claim it before this transaction ends."""

    def __init__(self, connection: Connection, claim: Claim, dataset: str) -> None:
        self._connection = connection
        self._claim = claim
        self._dataset = dataset

    def refuse_if_killed(self) -> None:
        """To be asked right before the swap: bytes may have been on their way for minutes. That the database answers
        also means that the locks are still held."""
        kill_switch.refuse_if_killed(self._connection, self._dataset)

    def commit(self, revision: Revision, records: RecordDigests, *, txn: int, note: str | None = None) -> None:
        record_revision(self._connection, revision)
        revisions.record_in_ledger(self._connection, self._dataset, revision, records)
        record_processed(self._connection, self._dataset, self._claim.key, self._inputs(txn))
        detail = {"revision": revision.revision} | ({"reason": note} if note else {})
        wal.append(self._connection, self._claim, Step.COMMIT, detail, txn=txn)
        mark_page_stale(self._connection, self._dataset, self._claim.key)
        mark_collection_changed(self._connection, self._dataset)
        settle(self._connection, self._claim, {"outcome": "APPLIED", "revision": revision.revision})

    def earlier_revisions(self, revision: int, withdrawn: Sequence[str]) -> list[int]:
        """Those before this one that may be seen."""
        rows = self._connection.execute(
            """
            SELECT revision FROM kfm.revisions
            WHERE key = %(key)s AND revision < %(revision)s AND NOT content_hash = ANY(%(withdrawn)s) ORDER BY revision
            """,
            {"key": self._claim.key, "revision": revision, "withdrawn": list(withdrawn)},
        )
        return [row["revision"] for row in rows]

    def withdrawn_contents(self, content_hash: str) -> list[str]:
        return tables.find_withdrawn_contents(self._connection, self._claim.key, content_hash)

    def traces_of(self, contents: Sequence[str]) -> WithdrawnArtifacts:
        return tables.find_withdrawn_artifacts(self._connection, self._claim.key, contents)

    def hold_snapshots(self) -> None:
        """Whoever is about to write one, or the graph, has done so, or learns of what is committed here."""
        tables.lock_snapshot(self._connection, self._dataset)
        tables.lock_graph(self._connection)

    def forget_snapshot(self) -> None:
        tables.delete_mark(self._connection, self._dataset, tables.ITEMS_SNAPSHOT)

    def forget_graph(self) -> None:
        tables.delete_graph_marks(self._connection)

    def intended_at(self, revision: int, txn: int) -> datetime:
        """When this revision was first about to be published; restoring it does not change that."""
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
        """The intent by which the current revision was published, if there is one."""
        row = self._connection.execute(
            "SELECT txn FROM kfm.revisions WHERE key = %(key)s ORDER BY revision DESC LIMIT 1", {"key": self._claim.key}
        ).fetchone()
        return wal.entry_of(self._connection, self._claim.key, row["txn"], Step.PUBLISH) if row else None

    def _inputs(self, txn: int) -> list[Mapping[str, Any]]:
        """The objects of this transaction, with the ETags they were found to have."""
        begun = wal.entry_of(self._connection, self._claim.key, txn, Step.BEGIN)
        computed = wal.entry_of(self._connection, self._claim.key, txn, Step.COMPUTE)
        found = computed.detail.get("etags", {}) if computed else {}
        inputs = begun.detail.get("inputs", []) if begun else []
        return [{**one, "etag": found.get(one["uri"], one["etag"])} for one in inputs]


@contextmanager
def open_publication(database: Database, claim: Claim, dataset: str, *, visible: bool = False) -> Iterator[Publication]:
    """Hold the key's row and the dataset's barrier while the pointer is swapped, so that a takeover or a kill waits for
    the swap or forbids it. `seen` is a swap that readers see already: that is completed whatever the switch says."""
    with database.transaction() as connection:
        gc_roots.block_collection(connection)
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
