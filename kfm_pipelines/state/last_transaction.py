"""How what is published came about, by the log: the transaction that last applied each key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.state.database import Database


@dataclass(frozen=True, slots=True)
class AppliedTransaction:
    """What the log says of the steps by which a key's current revision was made. A revision that was restored was made
    by whoever restored it last."""

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
    """Under which configuration that was. Nothing is kept of what was published before configurations were."""

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
    """None when nothing of the key is published."""
    rows = database.fetch(
        f"""
        SELECT asked.key, b.detail AS begun, c.detail AS computed, p.detail AS published {_APPLIED}
        JOIN kfm.wal b ON b.key = asked.key AND b.txn = a.txn AND b.step = 'begin'
        """,
        {"keys": [key]},
    )
    return AppliedTransaction(**rows[0]) if rows else None


def applied_configs(database: Database, keys: Sequence[str]) -> dict[str, AppliedConfig]:
    """Of those of the keys of which something is published; thousands at once."""
    rows = database.fetch(
        f"""
        SELECT asked.key, c.detail -> 'frozen' AS frozen, c.detail -> 'policy' AS policy,
               c.detail ->> 'exemption' AS exemption, p.detail ->> 'signed_by' AS signed_by {_APPLIED}
        """,
        {"keys": list(keys)},
    )
    return {row["key"]: AppliedConfig(**row) for row in rows}


def masking_policies(database: Database, keys: Sequence[str]) -> dict[str, str]:
    """Of those of the keys that ever went through a policy with a secret, which only one that masks needs: the last
    such policy, without its version. Published or not: what was read was found to be sensitive."""
    rows = database.fetch(
        """
        SELECT asked.key, m.policy
        FROM unnest(%(keys)s::text[]) AS asked (key)
        JOIN LATERAL (
            SELECT v.policy FROM kfm.wal w
            JOIN kfm.policy_versions v ON w.detail ->> 'policy' = v.policy || '@' || v.version
            WHERE w.key = asked.key AND w.step = 'mask' AND v.key_id IS NOT NULL ORDER BY w.id DESC LIMIT 1
        ) m ON true
        """,
        {"keys": list(keys)},
    )
    return {row["key"]: row["policy"] for row in rows}
