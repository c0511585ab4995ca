"""What was taken back: contents that only an exemption had let out unmasked, and whatever else tells of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.state.database import Connection


@dataclass(frozen=True, slots=True)
class WithdrawnArtifacts:
    """What withdrawn contents of one key have left behind."""

    revisions: tuple[int, ...]
    txns: tuple[int, ...]  # every transaction that came to such a content, also those that published nothing
    documents: frozenset[str]  # digests of documents and records that no other release of the key has
    are_current: bool  # what replaces them is not committed yet


def find_withdrawn_contents(connection: Connection, key: str, current: str) -> list[str]:
    """Contents of this key that only an exemption let out unmasked, when what is published now is something else.
    One that another key has as well is not only this key's to withdraw, unless that one's was exempted, too, and has
    been replaced."""
    rows = connection.execute(
        """
        SELECT DISTINCT r.content_hash FROM kfm.revisions r
        JOIN kfm.audit a ON a.key = r.key AND a.action = 'exempted' AND a.digest = r.content_hash
        WHERE r.key = %(key)s AND r.content_hash <> %(current)s
          AND NOT EXISTS (
            SELECT FROM kfm.revisions o WHERE o.content_hash = r.content_hash AND o.key <> r.key AND (
                NOT EXISTS (SELECT FROM kfm.audit b
                            WHERE b.key = o.key AND b.action = 'exempted' AND b.digest = o.content_hash)
                OR o.content_hash = (SELECT c.content_hash FROM kfm.revisions c
                                     WHERE c.key = o.key ORDER BY c.revision DESC LIMIT 1)))
        """,
        {"key": key, "current": current},
    )
    return [row["content_hash"] for row in rows]


def was_exempted(connection: Connection, key: str, content_hash: str) -> bool:
    """Whether only an exemption let this content of the key out."""
    found = connection.execute(
        "SELECT FROM kfm.audit WHERE key = %(key)s AND action = 'exempted' AND digest = %(content)s LIMIT 1",
        {"key": key, "content": content_hash},
    )
    return found.fetchone() is not None


def find_withdrawn_artifacts(connection: Connection, key: str, contents: Sequence[str]) -> WithdrawnArtifacts:
    parameters = {"key": key, "contents": list(contents)}
    revisions = connection.execute(
        """
        SELECT revision, content_hash = ANY(%(contents)s) AS gone FROM kfm.revisions WHERE key = %(key)s
        ORDER BY revision
        """,
        parameters,
    ).fetchall()
    txns = connection.execute(
        """
        SELECT DISTINCT txn FROM kfm.audit
        WHERE key = %(key)s AND action = 'exempted' AND digest = ANY(%(contents)s) AND txn IS NOT NULL
        """,
        parameters,
    ).fetchall()
    staged = connection.execute(
        """
        SELECT detail, detail->>'content_hash' = ANY(%(contents)s) AS gone FROM kfm.wal
        WHERE key = %(key)s AND step = 'stage_atomic'
        """,
        parameters,
    ).fetchall()
    gone = {digest for row in staged if row["gone"] for digest in _documents(row["detail"])}
    kept = {digest for row in staged if not row["gone"] for digest in _documents(row["detail"])}
    return WithdrawnArtifacts(
        tuple(row["revision"] for row in revisions if row["gone"]),
        tuple(row["txn"] for row in txns),
        frozenset(gone - kept),
        are_current=bool(revisions) and revisions[-1]["gone"],
    )


def any_withdrawn(connection: Connection, contents: Mapping[str, str]) -> bool:
    """Whether of these contents, by key, one that only an exemption let out is not, or no longer, current."""
    [row] = connection.execute(
        """
        SELECT EXISTS (
            SELECT FROM unnest(%(keys)s::text[], %(contents)s::text[]) AS o (key, content_hash)
            JOIN kfm.audit a ON a.key = o.key AND a.action = 'exempted' AND a.digest = o.content_hash
            WHERE o.content_hash IS DISTINCT FROM (
                SELECT r.content_hash FROM kfm.revisions r WHERE r.key = o.key ORDER BY r.revision DESC LIMIT 1)
        ) AS found
        """,
        {"keys": list(contents), "contents": list(contents.values())},
    ).fetchall()
    return bool(row["found"])


def _documents(detail: dict[str, Any]) -> list[str]:
    """Not what it has in common with other keys, like the list of software."""
    return [*detail.get("documents", {}).values(), *detail.get("records", {}).values()]
