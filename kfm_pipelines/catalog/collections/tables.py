"""SQL of collections, snapshots and withdrawn contents. Writers record the change they have written up to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.state.database import Connection, pairs

ITEMS_SNAPSHOT = "items"  # all Items of a collection in one table
GRAPH_SNAPSHOT = "provenance"  # the provenance of all collections in one graph
ATTEMPTS = 3
Written = TypeVar("Written")


@dataclass(frozen=True, slots=True)
class WithdrawnArtifacts:
    revisions: tuple[int, ...]
    txns: tuple[int, ...]  # every transaction that made such a content, even if it published nothing
    documents: frozenset[str]  # digests of documents and records that no other release of the key has
    files: frozenset[tuple[str, str]]  # name and digest of files beside the data, likewise
    are_current: bool  # their replacement is not committed yet


def lock_collection(connection: Connection, dataset: str) -> None:
    """Keeps other writers out until the transaction ends; publications need not wait."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm collection ' || %(d)s))", {"d": dataset})


def lock_root(connection: Connection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm root catalog'))")


def unwritten_change(connection: Connection, dataset: str) -> int | None:
    """Returns the last change of the collection, or None when it is written already."""
    query = "SELECT changed FROM kfm.collections WHERE dataset = %(d)s AND changed <> written"
    row = connection.execute(query, {"d": dataset}).fetchone()
    return None if row is None else int(row["changed"])


def stale_collections(connection: Connection) -> list[str]:
    rows = connection.execute("SELECT dataset FROM kfm.collections WHERE changed <> written ORDER BY dataset")
    return [row["dataset"] for row in rows]


def record_collection(connection: Connection, dataset: str, change: int) -> None:
    statement = "UPDATE kfm.collections SET written = %(change)s WHERE dataset = %(dataset)s"
    connection.execute(statement, {"dataset": dataset, "change": change})


def written_collections(connection: Connection, dataset: str) -> list[str]:
    statement = 'SELECT dataset FROM kfm.collections WHERE written > 0 OR dataset = %(d)s ORDER BY dataset COLLATE "C"'
    rows = connection.execute(statement, {"d": dataset})
    return [row["dataset"] for row in rows]


def lock_snapshot(connection: Connection, dataset: str) -> None:
    """Lets nobody else write or withdraw the snapshot of this collection until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm snapshot ' || %(d)s))", {"d": dataset})


def lock_graph(connection: Connection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('kfm provenance graph'))")


def changes_of(connection: Connection, dataset: str) -> int:
    query = "SELECT coalesce(sum(changed), 0)::bigint AS changes FROM kfm.collection_pages WHERE dataset = %(dataset)s"
    [row] = connection.execute(query, {"dataset": dataset}).fetchall()
    return int(row["changes"])


def changes_of_collections(connection: Connection) -> dict[str, int]:
    return pairs(connection.execute("SELECT dataset, changed FROM kfm.collections ORDER BY dataset"))


def has_snapshot(connection: Connection, dataset: str, kind: str) -> bool:
    return dataset in recorded_changes(connection, kind)


def recorded_changes(connection: Connection, kind: str) -> dict[str, int]:
    """Returns by dataset the change up to which a snapshot was written."""
    return pairs(connection.execute("SELECT dataset, changed FROM kfm.snapshots WHERE kind = %(kind)s", {"kind": kind}))


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to which change of a collection something was done, and when that was recorded."""

    changed: int
    at: datetime


def read_mark(connection: Connection, dataset: str, kind: str) -> Mark | None:
    query = "SELECT changed, at FROM kfm.snapshots WHERE dataset = %(dataset)s AND kind = %(kind)s"
    row = connection.execute(query, {"dataset": dataset, "kind": kind}).fetchone()
    return Mark(**row) if row else None


def record_mark(connection: Connection, kind: str, changes: Mapping[str, int]) -> None:
    for dataset, changed in changes.items():
        statement = """
            INSERT INTO kfm.snapshots (dataset, kind, changed) VALUES (%(dataset)s, %(kind)s, %(changed)s)
            ON CONFLICT (dataset, kind) DO UPDATE SET changed = excluded.changed, at = excluded.at
        """
        connection.execute(statement, {"dataset": dataset, "kind": kind, "changed": changed})


def delete_mark(connection: Connection, dataset: str, kind: str) -> None:
    statement = "DELETE FROM kfm.snapshots WHERE dataset = %(dataset)s AND kind = %(kind)s"
    connection.execute(statement, {"dataset": dataset, "kind": kind})


def delete_graph_marks(connection: Connection) -> None:
    connection.execute("DELETE FROM kfm.snapshots WHERE kind = %(kind)s", {"kind": GRAPH_SNAPSHOT})


def retry_until_written(what: str, attempt: Callable[[], Written | None]) -> Written:
    """Returns the first result that is not None. Raises ServiceUnavailable when every attempt was outdated."""
    for _ in range(ATTEMPTS):
        written = attempt()
        if written is not None:
            return written
    raise ServiceUnavailable(f"the sources of {what} changed during each of {ATTEMPTS} attempts to write it")


def is_outdated(connection: Connection, kind: str, changes: Mapping[str, int], contents: Mapping[str, str]) -> bool:
    """Returns whether a newer snapshot exists, or one of its contents was withdrawn, as long as the lock is held."""
    taken = recorded_changes(connection, kind)
    has_newer = any(dataset in taken and taken[dataset] > changed for dataset, changed in changes.items())
    return has_newer or any_withdrawn(connection, contents)


def find_withdrawn_contents(connection: Connection, current: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns replaced contents that only an exemption released unmasked, unless another key still has them."""
    query = """
        SELECT r.key, array_agg(DISTINCT r.content_hash) AS contents
        FROM unnest(%(keys)s::text[], %(contents)s::text[]) AS asked (key, content_hash)
        JOIN kfm.revisions r ON r.key = asked.key AND r.content_hash <> asked.content_hash
        JOIN kfm.audit a ON a.key = r.key AND a.action = 'exempted' AND a.digest = r.content_hash
        WHERE NOT EXISTS (
            SELECT FROM kfm.revisions o WHERE o.content_hash = r.content_hash AND o.key <> r.key AND (
                NOT EXISTS (SELECT FROM kfm.audit b
                            WHERE b.key = o.key AND b.action = 'exempted' AND b.digest = o.content_hash)
                OR o.content_hash = (SELECT c.content_hash FROM kfm.revisions c
                                     WHERE c.key = o.key ORDER BY c.revision DESC LIMIT 1)))
        GROUP BY r.key
    """
    return pairs(connection.execute(query, {"keys": list(current), "contents": list(current.values())}))


def was_exempted(connection: Connection, key: str, content_hash: str) -> bool:
    query = "SELECT FROM kfm.audit WHERE key = %(key)s AND action = 'exempted' AND digest = %(content)s LIMIT 1"
    found = connection.execute(query, {"key": key, "content": content_hash})
    return found.fetchone() is not None


def find_withdrawn_artifacts(connection: Connection, key: str, contents: Sequence[str]) -> WithdrawnArtifacts:
    parameters = {"key": key, "contents": list(contents)}
    revisions = connection.execute(
        "SELECT revision, content_hash = ANY(%(contents)s) AS gone FROM kfm.revisions WHERE key = %(key)s ORDER BY 1",
        parameters,
    ).fetchall()
    query = """
        SELECT DISTINCT txn FROM kfm.audit
        WHERE key = %(key)s AND action = 'exempted' AND digest = ANY(%(contents)s) AND txn IS NOT NULL
    """
    txns = connection.execute(query, parameters).fetchall()
    query = """
        SELECT detail, detail->>'content_hash' = ANY(%(contents)s) AS gone FROM kfm.wal
        WHERE key = %(key)s AND step = 'stage_atomic'
    """
    staged = connection.execute(query, parameters).fetchall()
    gone, kept = ([row["detail"] for row in staged if row["gone"] is wanted] for wanted in (True, False))
    return WithdrawnArtifacts(
        tuple(row["revision"] for row in revisions if row["gone"]),
        tuple(row["txn"] for row in txns),
        frozenset({digest for one in gone for digest in _documents(one)})
        - {digest for one in kept for digest in _documents(one)},
        frozenset({name_and_digest for one in gone for name_and_digest in one.get("files", {}).items()})
        - {name_and_digest for one in kept for name_and_digest in one.get("files", {}).items()},
        are_current=bool(revisions) and revisions[-1]["gone"],
    )


def any_withdrawn(connection: Connection, contents: Mapping[str, str]) -> bool:
    """Returns whether one of these contents, by key, was released only by an exemption and is not current."""
    query = """
        SELECT EXISTS (
            SELECT FROM unnest(%(keys)s::text[], %(contents)s::text[]) AS o (key, content_hash)
            JOIN kfm.audit a ON a.key = o.key AND a.action = 'exempted' AND a.digest = o.content_hash
            WHERE o.content_hash IS DISTINCT FROM (
                SELECT r.content_hash FROM kfm.revisions r WHERE r.key = o.key ORDER BY r.revision DESC LIMIT 1)
        ) AS found
    """
    [row] = connection.execute(query, {"keys": list(contents), "contents": list(contents.values())}).fetchall()
    return bool(row["found"])


def _documents(detail: dict[str, Any]) -> list[str]:
    """Leaves out what keys share, such as the list of software."""
    return [*detail.get("documents", {}).values(), *detail.get("records", {}).values()]
