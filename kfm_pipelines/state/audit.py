"""What has to be provable later: the audit log of what was done to sensitive data, decided about it and by whom, and
snapshots of declarations, environments and coefficients, stored by digest. Both can only be added to."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import rfc8785

from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.state.database import Connection, Database, insert_rows, jsonb


class Action(StrEnum):
    POLICY_USED = "policy-used"
    MASKED = "masked"
    LEFT_OPEN = "left-open"
    EXEMPTED = "exempted"
    EXEMPTION_GIVEN = "exemption-given"
    EXEMPTION_ENDED = "exemption-ended"
    REVIEW_ASKED = "review-asked"
    REVIEW_APPROVED = "review-approved"
    REVIEW_REJECTED = "review-rejected"
    RESTRICTED_READ = "restricted-read"
    LATE_RELEASED = "late-released"
    WINDOWS_REGISTERED = "windows-registered"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One audit line; `detail` holds counts, names and digests, never values from the data."""

    action: Action
    actor: str
    dataset: str
    policy: str
    key: str | None = None
    txn: int | None = None
    digest: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def record(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    insert_rows(connection, "audit", [asdict(entry) for entry in entries])


def entries_of_key(database: Database, key: str) -> list[dict[str, Any]]:
    query = "SELECT at, action, actor, policy, digest, txn, detail FROM kfm.audit WHERE key = %(key)s ORDER BY id"
    return database.fetch(query, {"key": key})


def save_snapshot(database: Database, kind: str, document: Mapping[str, Any]) -> str:
    """Stores the document and returns its digest."""
    digest = digest_of(document)
    database.execute(
        "INSERT INTO kfm.frozen (digest, kind, document) VALUES (%(digest)s, %(kind)s, %(document)s)"
        " ON CONFLICT DO NOTHING",
        {"digest": digest, "kind": kind, "document": jsonb(dict(document))},
    )
    return digest


def load_snapshot(database: Database, digest: str) -> Mapping[str, Any]:
    """Raises IntegrityBroken when the document is missing or no longer matches its digest."""
    rows = database.fetch("SELECT document FROM kfm.frozen WHERE digest = %(digest)s", {"digest": digest})
    if not rows:
        raise IntegrityBroken(f"there is no snapshot {digest[:12]}")
    document: Mapping[str, Any] = rows[0]["document"]
    if digest_of(document) != digest:
        raise IntegrityBroken(f"snapshot {digest[:12]} no longer matches its digest")
    return document


def digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(rfc8785.dumps(document)).hexdigest()
