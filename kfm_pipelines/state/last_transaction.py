"""The transaction and configuration behind each key's current revision, read from the write-ahead log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.state.database import Database, pairs


@dataclass(frozen=True, slots=True)
class AppliedTransaction:
    """The logged steps of the transaction that last applied a key, including one that restored a revision."""

    key: str
    begun: Mapping[str, Any]
    computed: Mapping[str, Any]
    published: Mapping[str, Any]

    @property
    def revision(self) -> int:
        return int(self.published["revision"])

    @property
    def inputs(self) -> list[Mapping[str, Any]]:
        return list(self.begun.get("inputs", []))


@dataclass(frozen=True, slots=True)
class AppliedConfig:
    """The configuration of that transaction; None for what was published before snapshots were kept."""

    key: str
    frozen: Mapping[str, str] | None
    policy: Mapping[str, str] | None
    exemption: str | None
    signed_by: str


_APPLIED = """
    FROM unnest(%(keys)s::text[]) AS asked (key)
    JOIN LATERAL (SELECT txn FROM kfm.wal w WHERE w.key = asked.key AND w.step = 'commit' ORDER BY id DESC LIMIT 1) a
         ON true
    JOIN kfm.wal c ON c.key = asked.key AND c.txn = a.txn AND c.step = 'compute'
    JOIN kfm.wal p ON p.key = asked.key AND p.txn = a.txn AND p.step = 'publish'
"""


def applied_transaction(database: Database, key: str) -> AppliedTransaction | None:
    """Returns None when the key has never been published."""
    query = f"""
        SELECT asked.key, b.detail AS begun, c.detail AS computed, p.detail AS published {_APPLIED}
        JOIN kfm.wal b ON b.key = asked.key AND b.txn = a.txn AND b.step = 'begin'
    """
    rows = database.fetch(query, {"keys": [key]})
    return AppliedTransaction(**rows[0]) if rows else None


def applied_configs(database: Database, keys: Sequence[str]) -> dict[str, AppliedConfig]:
    """Returns the configuration of each published key among `keys`."""
    query = f"""
        SELECT asked.key, c.detail -> 'frozen' AS frozen, c.detail -> 'policy' AS policy,
               c.detail ->> 'exemption' AS exemption, p.detail ->> 'signed_by' AS signed_by {_APPLIED}
    """
    rows = database.fetch(query, {"keys": list(keys)})
    return {row["key"]: AppliedConfig(**row) for row in rows}


def masking_policies(database: Database, keys: Sequence[str]) -> dict[str, str]:
    """Returns the last policy with a secret, without its version, of each key that ever went through one."""
    query = """
        SELECT asked.key, m.policy
        FROM unnest(%(keys)s::text[]) AS asked (key)
        JOIN LATERAL (
            SELECT v.policy FROM kfm.wal w
            JOIN kfm.policy_versions v ON w.detail ->> 'policy' = v.policy || '@' || v.version
            WHERE w.key = asked.key AND w.step = 'mask' AND v.key_id IS NOT NULL ORDER BY w.id DESC LIMIT 1
        ) m ON true
    """
    return pairs(database.fetch(query, {"keys": list(keys)}))
