"""The audit log: what was done to sensitive data, what was decided about it and who saw it. Append-only."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from kfm_pipelines.state.database import Connection, Database, insert_rows


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
    return database.fetch(
        "SELECT at, action, actor, policy, digest, txn, detail FROM kfm.audit WHERE key = %(key)s ORDER BY id",
        {"key": key},
    )
