"""Snapshots: up to which change of its pages a collection was last written in one piece."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

ITEMS = "items"  # all Items in one table


@dataclass(frozen=True, slots=True)
class RecordedItem:
    """What the log says is current of one key."""

    key: str
    content_hash: str
    item_hash: str


def hold(connection: "Connection[dict[str, Any]]", dataset: str) -> None:
    """Until the transaction ends nobody else writes a snapshot of this collection, or takes one back."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm snapshot ' || %(d)s))", {"d": dataset})


def recorded_items(connection: "Connection[dict[str, Any]]", dataset: str) -> list[RecordedItem]:
    rows = connection.execute(
        """
        SELECT DISTINCT ON (k.key) k.key, r.content_hash, r.item_hash
        FROM kfm.keys k JOIN kfm.revisions r ON r.key = k.key
        WHERE k.dataset = %(dataset)s ORDER BY k.key, r.revision DESC
        """,
        {"dataset": dataset},
    )
    return [RecordedItem(**row) for row in rows]


def settled_item(connection: "Connection[dict[str, Any]]", key: str) -> RecordedItem:
    """The same of one key, when whoever publishes it is through; nobody does until the transaction ends."""
    connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR SHARE", {"key": key})
    [row] = connection.execute(
        """
        SELECT key, content_hash, item_hash FROM kfm.revisions WHERE key = %(key)s ORDER BY revision DESC LIMIT 1
        """,
        {"key": key},
    ).fetchall()
    return RecordedItem(**row)


def changes_of(connection: "Connection[dict[str, Any]]", dataset: str) -> int:
    """How often anything of the collection was published."""
    [row] = connection.execute(
        "SELECT coalesce(sum(changed), 0)::bigint AS changes FROM kfm.collection_pages WHERE dataset = %(dataset)s",
        {"dataset": dataset},
    ).fetchall()
    return int(row["changes"])


def is_there(connection: "Connection[dict[str, Any]]", dataset: str, kind: str) -> bool:
    return taken_up_to(connection, dataset, kind) is not None


def taken_up_to(connection: "Connection[dict[str, Any]]", dataset: str, kind: str) -> int | None:
    row = connection.execute(
        "SELECT changed FROM kfm.snapshots WHERE dataset = %(dataset)s AND kind = %(kind)s",
        {"dataset": dataset, "kind": kind},
    ).fetchone()
    return None if row is None else int(row["changed"])


def record_snapshot(connection: "Connection[dict[str, Any]]", dataset: str, kind: str, changes: int) -> None:
    connection.execute(
        """
        INSERT INTO kfm.snapshots (dataset, kind, changed) VALUES (%(dataset)s, %(kind)s, %(changes)s)
        ON CONFLICT (dataset, kind) DO UPDATE SET changed = excluded.changed, at = excluded.at
        """,
        {"dataset": dataset, "kind": kind, "changes": changes},
    )


def forget(connection: "Connection[dict[str, Any]]", dataset: str, kind: str) -> None:
    connection.execute(
        "DELETE FROM kfm.snapshots WHERE dataset = %(dataset)s AND kind = %(kind)s", {"dataset": dataset, "kind": kind}
    )
