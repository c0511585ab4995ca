"""Snapshots: up to which change of its pages a collection was last written in one piece."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

ITEMS = "items"  # all Items in one table


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
