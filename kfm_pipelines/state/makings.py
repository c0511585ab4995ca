"""How what is published came about, by the log: the transaction that last applied each key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.state.database import Database


@dataclass(frozen=True, slots=True)
class Making:
    """What the log says of the steps by which a key's current revision was made. A revision that was restored was made
    by whoever restored it last."""

    key: str
    revision: int
    begun: Mapping[str, Any]
    computed: Mapping[str, Any]
    published: Mapping[str, Any]

    @property
    def inputs(self) -> list[Mapping[str, Any]]:
        return list(self.begun.get("inputs", []))


def makings_of(database: Database, keys: Sequence[str]) -> dict[str, Making]:
    """Of those of the keys of which something is published."""
    rows = database.fetch(
        """
        WITH applied AS (
            SELECT DISTINCT ON (key) key, txn FROM kfm.wal
            WHERE key = ANY(%(keys)s) AND step = 'commit' ORDER BY key, id DESC
        )
        SELECT a.key, p.detail AS published, b.detail AS begun, c.detail AS computed
        FROM applied a
        JOIN kfm.wal b ON b.key = a.key AND b.txn = a.txn AND b.step = 'begin'
        JOIN kfm.wal c ON c.key = a.key AND c.txn = a.txn AND c.step = 'compute'
        JOIN kfm.wal p ON p.key = a.key AND p.txn = a.txn AND p.step = 'publish'
        """,
        {"keys": list(keys)},
    )
    return {row["key"]: Making(revision=row["published"]["revision"], **row) for row in rows}


def making_of(database: Database, key: str) -> Making | None:
    return makings_of(database, [key]).get(key)
