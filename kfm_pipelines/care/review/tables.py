"""Staged releases that await review, and the decisions about them (SQL)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.care.signatures import Signature
from kfm_pipelines.errors import ReviewRefused
from kfm_pipelines.state import audit
from kfm_pipelines.state.audit import Action, AuditEntry
from kfm_pipelines.state.database import Connection, Database, insert_rows
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.text import truncate_line


@dataclass(frozen=True, slots=True)
class PendingReview:
    key: str
    dataset: str
    txn: int
    release_digest: str
    since: datetime
    release: Mapping[str, Any]  # as it was staged


@dataclass(frozen=True, slots=True)
class Decision:
    key: str
    release_digest: str
    decision: str
    signed: Signature
    at: datetime


def pending_reviews(
    database: Database, dataset: str | None = None, *, also_approved: bool = False
) -> list[PendingReview]:
    """Returns the longest waiting first. Approved releases that no run has claimed yet are left out by default."""
    query = """
        SELECT k.key, k.dataset, k.awaiting, w.txn, w.at, w.detail
        FROM kfm.keys k CROSS JOIN LATERAL (
            SELECT txn, at, detail FROM kfm.wal WHERE key = k.key AND step = 'stage_atomic' ORDER BY id DESC LIMIT 1) w
        WHERE k.awaiting IS NOT NULL AND k.owner IS NULL AND (k.due_at IS NULL OR %(also_approved)s)
          AND k.dataset = coalesce(%(dataset)s, k.dataset)
        ORDER BY w.at, k.key
    """
    rows = database.fetch(query, {"dataset": dataset, "also_approved": also_approved})
    return [PendingReview(r["key"], r["dataset"], r["txn"], r["awaiting"], r["at"], r["detail"]) for r in rows]


def pending_review(database: Database, key: str, *, also_approved: bool = False) -> PendingReview:
    for pending in pending_reviews(database, also_approved=also_approved):
        if pending.key == key:
            return pending
    raise ReviewRefused(f"{truncate_line(key, 200)}: no release of this key awaits review")


def decisions_about(database: Database, key: str, release_digest: str) -> list[Decision]:
    query = "SELECT * FROM kfm.review_decisions WHERE key = %(key)s AND release_digest = %(digest)s ORDER BY id"
    rows = database.fetch(query, {"key": key, "digest": release_digest})
    return [
        Decision(row["key"], row["release_digest"], row["decision"], Signature.from_row(row), row["at"]) for row in rows
    ]


def approve(database: Database, pending: PendingReview, signed: Signature, policy: str) -> None:
    """Records the approval and makes the key due: a run reproduces the same bytes and publishes them."""
    with database.transaction() as connection:
        _record_decision(connection, pending, "approved", signed, policy)
        statement = """
            UPDATE kfm.keys SET due_at = clock_timestamp()
            WHERE key = %(key)s AND awaiting = %(digest)s AND owner IS NULL AND due_at IS NULL
        """
        freed = connection.execute(statement, {"key": pending.key, "digest": pending.release_digest}).rowcount
        if not freed:
            raise _no_longer_pending(pending)


def reject(database: Database, pending: PendingReview, signed: Signature, policy: str, lease_seconds: int) -> Claim:
    """Records the rejection and claims the key, if this release still awaits review, so that nobody publishes it."""
    owner = f"review {signed.key_id}"
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.keys
            SET epoch = epoch + 1, owner = %(owner)s, attempts = attempts + 1, due_at = NULL,
                lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
            WHERE key = %(key)s AND awaiting = %(digest)s AND owner IS NULL
            RETURNING epoch, attempts
        """
        parameters = {"key": pending.key, "digest": pending.release_digest, "owner": owner, "lease": lease_seconds}
        row = connection.execute(statement, parameters).fetchone()
        if row is None:
            raise _no_longer_pending(pending)
        _record_decision(connection, pending, "rejected", signed, policy)
    return Claim(pending.key, row["epoch"], row["attempts"], owner)


def _no_longer_pending(pending: PendingReview) -> ReviewRefused:
    return ReviewRefused(f"{pending.key}: this release no longer awaits review; look again")


def _record_decision(
    connection: Connection, pending: PendingReview, decision: str, signed: Signature, policy: str
) -> None:
    decided = {"key": pending.key, "release_digest": pending.release_digest, "decision": decision}
    insert_rows(connection, "review_decisions", [decided | asdict(signed)])
    action = Action.REVIEW_APPROVED if decision == "approved" else Action.REVIEW_REJECTED
    detail = {"reason": signed.statement.get("reason", "")}
    audit.record(connection, [audit_entry(action, pending, signed, policy, detail)])


def audit_entry(
    action: Action, pending: PendingReview, signed: Signature, policy: str, detail: Mapping[str, Any]
) -> AuditEntry:
    release = pending.release_digest
    return AuditEntry(
        action, signed.holder, pending.dataset, policy, key=pending.key, txn=pending.txn, digest=release, detail=detail
    )
