"""Snapshots: up to which change of the collections something is written that is made of all their releases. Of each
collection that is the table of its Items; of all of them together, the graph of provenance."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from kfm_pipelines.catalog.collections.withdrawals import any_withdrawn
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.state.database import Connection

ITEMS = "items"  # all Items in one table
PROVENANCE = "provenance"  # all of it in one graph


def lock_snapshot(connection: Connection, dataset: str) -> None:
    """Until the transaction ends nobody else writes a snapshot of this collection, or takes one back."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm snapshot ' || %(d)s))", {"d": dataset})


def lock_graph(connection: Connection) -> None:
    """Until the transaction ends nobody else writes the graph, or takes it back."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm provenance graph'))")


def changes_of(connection: Connection, dataset: str) -> int:
    """How often anything of the collection was published."""
    [row] = connection.execute(
        "SELECT coalesce(sum(changed), 0)::bigint AS changes FROM kfm.collection_pages WHERE dataset = %(dataset)s",
        {"dataset": dataset},
    ).fetchall()
    return int(row["changes"])


def changes_of_collections(connection: Connection) -> dict[str, int]:
    rows = connection.execute("SELECT dataset, changed FROM kfm.collections ORDER BY dataset")
    return {row["dataset"]: row["changed"] for row in rows}


def has_snapshot(connection: Connection, dataset: str, kind: str) -> bool:
    return dataset in recorded_changes(connection, kind)


def recorded_changes(connection: Connection, kind: str) -> dict[str, int]:
    """By dataset; one that it was never taken of is not there."""
    rows = connection.execute("SELECT dataset, changed FROM kfm.snapshots WHERE kind = %(kind)s", {"kind": kind})
    return {row["dataset"]: row["changed"] for row in rows}


def has_newer_snapshot(connection: Connection, kind: str, changes: Mapping[str, int]) -> bool:
    """Whether one was taken meanwhile that goes further than these changes."""
    taken = recorded_changes(connection, kind)
    return any(dataset in taken and taken[dataset] > changed for dataset, changed in changes.items())


def record_mark(connection: Connection, kind: str, changes: Mapping[str, int]) -> None:
    for dataset, changed in changes.items():
        connection.execute(
            """
            INSERT INTO kfm.snapshots (dataset, kind, changed) VALUES (%(dataset)s, %(kind)s, %(changed)s)
            ON CONFLICT (dataset, kind) DO UPDATE SET changed = excluded.changed, at = excluded.at
            """,
            {"dataset": dataset, "kind": kind, "changed": changed},
        )


def delete_mark(connection: Connection, dataset: str, kind: str) -> None:
    connection.execute(
        "DELETE FROM kfm.snapshots WHERE dataset = %(dataset)s AND kind = %(kind)s", {"dataset": dataset, "kind": kind}
    )


def delete_graph_marks(connection: Connection) -> None:
    """Of every dataset: it is one graph."""
    connection.execute("DELETE FROM kfm.snapshots WHERE kind = %(kind)s", {"kind": PROVENANCE})


ATTEMPTS = 3

Written = TypeVar("Written")


def retry_until_written(what: str, attempt: Callable[[], Written | None]) -> Written:
    """What came of the first attempt that was not in vain."""
    for _ in range(ATTEMPTS):
        written = attempt()
        if written is not None:
            return written
    raise ServiceUnavailable(f"what {what} was made of changed each time before it was written")


def is_outdated(connection: Connection, kind: str, changes: Mapping[str, int], contents: Mapping[str, str]) -> bool:
    """Whether it must not be written: there is a newer one, or of the contents that were `read`, by key, one was taken
    back. Holds for as long as the caller holds off others."""
    return has_newer_snapshot(connection, kind, changes) or any_withdrawn(connection, contents)
