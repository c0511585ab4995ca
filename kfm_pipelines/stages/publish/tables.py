"""The database side of publishing: the locked key, what is committed with its swap, and what must be kept.

A publication blocks garbage collection until its transaction ends, and a collector excludes publications. Either waits
for the other before it takes any further lock, so there is no deadlock.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from kfm_pipelines.catalog.collections.pages import mark_pages_stale
from kfm_pipelines.errors import DatasetKilled, Fenced, KfmError
from kfm_pipelines.stages.publish.stage import Release
from kfm_pipelines.state import kill_switch, outbox, wal
from kfm_pipelines.state.database import IDLE_IN_TRANSACTION_SECONDS, Connection, Database, advisory_lock
from kfm_pipelines.state.keys import Claim, fenced_error, wrong_dataset_reason
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines.state.revisions import (
    Revision,
    mark_collection_changed,
    record_in_ledger,
    record_processed,
    record_revisions,
)
from kfm_pipelines.state.transactions import settle
from kfm_pipelines.state.wal import Step, Transition

_COLLECTION_LOCK = {"seat": "kfm collecting"}
# Publications queue up behind a waiting collector, so it does not wait for long.
LONGEST_WAIT_SECONDS = 1.0
_MARGIN = {"margin": 5 * IDLE_IN_TRANSACTION_SECONDS}


@dataclass(frozen=True, slots=True)
class CommittedRelease:
    """What is committed of a release that readers see."""

    claim: Claim
    revision: Revision
    records: Mapping[str, str]  # digests of manifest and attestation
    inputs: Sequence[Mapping[str, Any]]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """Keys of one dataset locked for their pointer swaps; no other worker can claim them before the transaction ends.
    `refused` are those that others have taken over, with the reason; `sinks` show what is published elsewhere."""

    connection: Connection
    dataset: str
    refused: Mapping[str, KfmError]
    sinks: Sequence[Sink]

    def refuse_if_killed(self) -> None:
        """Call right before the swap. An answer also proves that the locks are still held."""
        kill_switch.refuse_if_killed(self.connection, self.dataset)

    def commit(self, published: Sequence[CommittedRelease]) -> None:
        connection, revisions = self.connection, [one.revision for one in published]
        record_revisions(connection, revisions)
        record_in_ledger(connection, self.dataset, {one.revision: one.records for one in published})
        record_processed(connection, self.dataset, {one.claim.key: one.inputs for one in published})
        details = {one.claim: {"revision": one.revision.revision} for one in published}
        notes = {one.claim: {"reason": one.note} for one in published if one.note}
        wal.append(
            connection,
            [
                Transition(one.claim, Step.COMMIT, {**details[one.claim], **notes.get(one.claim, {})}, one.revision.txn)
                for one in published
            ],
        )
        mark_pages_stale(connection, self.dataset, [one.claim.key for one in published])
        mark_collection_changed(connection, self.dataset)
        if self.sinks:
            outbox.request(connection, self.sinks, self.dataset, [one.claim.key for one in published])
        settle(connection, {claim: {"outcome": "APPLIED", **detail} for claim, detail in details.items()})

    def earlier_revisions(self, key: str, revision: int, withdrawn: Sequence[str]) -> list[int]:
        """Returns the revisions before this one that are not withdrawn."""
        query = """
            SELECT revision FROM kfm.revisions
            WHERE key = %(key)s AND revision < %(revision)s AND NOT content_hash = ANY(%(withdrawn)s) ORDER BY revision
        """
        rows = self.connection.execute(query, {"key": key, "revision": revision, "withdrawn": list(withdrawn)})
        return [row["revision"] for row in rows]

    def intended_at(self, releases: Mapping[str, tuple[int, int]]) -> dict[str, datetime]:
        """Returns when each revision, given with its transaction by key, was first intended to be published; restoring
        it does not change that."""
        query = """
            SELECT w.key, w.at FROM unnest(%(keys)s::text[], %(revisions)s::integer[], %(txns)s::bigint[])
                 AS asked (key, revision, txn)
            LEFT JOIN kfm.revisions r ON r.key = asked.key AND r.revision = asked.revision
            JOIN kfm.wal w ON w.key = asked.key AND w.step = 'publish' AND w.txn = coalesce(r.txn, asked.txn)
        """
        parameters = {
            "keys": list(releases),
            "revisions": [revision for revision, _ in releases.values()],
            "txns": [txn for _, txn in releases.values()],
        }
        rows = self.connection.execute(query, parameters)
        return {row["key"]: row["at"] for row in rows}


@contextmanager
def open_publication(database: Database) -> Iterator[Connection]:
    """Opens the transaction of a publication, in which no object can be collected."""
    with database.transaction() as connection:
        block_collection(connection)
        yield connection


def lock_keys(
    connection: Connection, dataset: str, claims: Sequence[Claim], *, visible: bool = False, sinks: Sequence[Sink] = ()
) -> Publication:
    """Holds the keys' rows and the dataset's barrier until the transaction ends, so that a takeover or a kill either
    waits for the swaps or prevents them. Swaps that are `visible` to readers are completed even in a killed dataset."""
    held = kill_switch.hold_barrier(connection, dataset)
    if not visible:
        kill_switch.refuse_if_killed(connection, dataset)
        if not held:
            raise DatasetKilled(f"{dataset} was killed a moment ago")
    query = "SELECT key, epoch, dataset FROM kfm.keys WHERE key = ANY(%(keys)s) ORDER BY key FOR UPDATE"
    rows = connection.execute(query, {"keys": [claim.key for claim in claims]})
    found, refused = {row["key"]: row for row in rows}, {}
    for claim in claims:
        row = found.get(claim.key)
        if row is None or row["epoch"] != claim.epoch:
            refused[claim.key] = fenced_error(claim)
        elif row["dataset"] != dataset:
            refused[claim.key] = Fenced(wrong_dataset_reason(claim.key, row["dataset"], dataset))
    return Publication(connection, dataset, refused, sinks)


def retained_releases(connection: Connection, *, since: datetime | None = None) -> list[Release]:
    """Returns the releases whose objects must be kept: each one that may still be published, is a revision, or was the
    last applied to its key (a restored revision gets new documents), except those whose content was withdrawn with its
    exemption. `since` leaves out what was staged earlier and keeps the query fast however long the log is."""
    statement = """
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
    """
    rows = connection.execute(statement, {"since": since})
    return [Release.from_values(row["detail"]) for row in rows]


def open_transactions(connection: Connection) -> set[tuple[str, int]]:
    """Returns key and transaction of everything that has not ended."""
    query = """
        SELECT key, epoch AS txn FROM kfm.keys WHERE owner IS NOT NULL
        UNION
        SELECT key, txn FROM (SELECT DISTINCT ON (key) key, txn, outcome FROM kfm.wal ORDER BY key, id DESC) last
        WHERE outcome IS NULL
    """
    rows = connection.execute(query)
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
