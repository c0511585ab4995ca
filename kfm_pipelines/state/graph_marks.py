"""Up to which change of each collection the merged graph of provenance goes."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

KIND = "provenance"


def hold_graph(connection: "Connection[dict[str, Any]]") -> None:
    """Until the transaction ends nobody else writes the graph, or takes it back."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm provenance graph'))")


def changes_of_collections(connection: "Connection[dict[str, Any]]") -> dict[str, int]:
    rows = connection.execute("SELECT dataset, changed FROM kfm.collections ORDER BY dataset")
    return {row["dataset"]: row["changed"] for row in rows}


def changes_in_graph(connection: "Connection[dict[str, Any]]") -> dict[str, int]:
    rows = connection.execute("SELECT dataset, changed FROM kfm.snapshots WHERE kind = %(kind)s", {"kind": KIND})
    return {row["dataset"]: row["changed"] for row in rows}


def mark_graph(connection: "Connection[dict[str, Any]]", changes: dict[str, int]) -> None:
    for dataset, changed in changes.items():
        connection.execute(
            """
            INSERT INTO kfm.snapshots (dataset, kind, changed) VALUES (%(dataset)s, %(kind)s, %(changed)s)
            ON CONFLICT (dataset, kind) DO UPDATE SET changed = EXCLUDED.changed, at = clock_timestamp()
            """,
            {"dataset": dataset, "kind": KIND, "changed": changed},
        )


def forget_graph(connection: "Connection[dict[str, Any]]") -> None:
    connection.execute("DELETE FROM kfm.snapshots WHERE kind = %(kind)s", {"kind": KIND})
