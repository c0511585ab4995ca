"""Revisions: what is published for each key, in the order it was applied."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.declarations.identity import BBox, box_from
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.state.database import Connection, Database


@dataclass(frozen=True, slots=True)
class Revision:
    """One publication of a key."""

    key: str
    revision: int
    txn: int
    inputs_hash: str
    fingerprint: str
    content_hash: str
    item_hash: str
    rows: int
    bytes: int
    bbox: BBox | None
    run_id: str


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """What a collection needs to know of one published key."""

    key: str
    window_start: datetime
    window_end: datetime
    bbox: BBox | None


def current_revision(database: Database, key: str) -> Revision | None:
    rows = database.fetch(
        "SELECT * FROM kfm.revisions WHERE key = %(key)s ORDER BY revision DESC LIMIT 1", {"key": key}
    )
    return _revision(rows[0]) if rows else None


def record_revision(connection: Connection, new: Revision) -> None:
    """Record it, unless it restores the one that is current; then its bytes must be the same. Its Item may differ: it
    names the software that made it."""
    row = connection.execute(
        "SELECT * FROM kfm.revisions WHERE key = %(key)s AND revision = %(revision)s",
        {"key": new.key, "revision": new.revision},
    ).fetchone()
    if row is None:
        _insert(connection, new)
    elif row["content_hash"] != new.content_hash:
        raise IntegrityBroken(
            f"{new.key}: revision {new.revision} came out as {new.content_hash[:12]}, not {row['content_hash'][:12]}"
        )
    else:
        connection.execute(
            """
            UPDATE kfm.revisions SET item_hash = %(item_hash)s
            WHERE key = %(key)s AND revision = %(revision)s AND item_hash <> %(item_hash)s
            """,
            {"key": new.key, "revision": new.revision, "item_hash": new.item_hash},
        )


def neighbour_rows(database: Database, key: str, windows: int) -> list[int]:
    """How many rows are published for the windows around a key's: so many before it and so many after it, of the same
    dataset and transform. Found from the key outwards, so that it does not matter how many windows there are."""
    # Without OFFSET 0 the planner turns the look at each neighbour into a join over all of them.
    rows = database.fetch(
        """
        SELECT (SELECT rows FROM kfm.revisions r WHERE r.key = near.key ORDER BY r.revision DESC LIMIT 1) AS rows
        FROM kfm.keys mine, LATERAL (
            (SELECT k.key FROM kfm.keys k
             WHERE k.dataset = mine.dataset AND k.window_start < mine.window_start
               AND split_part(k.key, ':', 5) = split_part(mine.key, ':', 5)
               AND EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key OFFSET 0)
             ORDER BY k.window_start DESC LIMIT %(windows)s)
            UNION ALL
            (SELECT k.key FROM kfm.keys k
             WHERE k.dataset = mine.dataset AND k.window_start > mine.window_start
               AND split_part(k.key, ':', 5) = split_part(mine.key, ':', 5)
               AND EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key OFFSET 0)
             ORDER BY k.window_start LIMIT %(windows)s)
        ) AS near
        WHERE mine.key = %(key)s
        """,
        {"key": key, "windows": windows},
    )
    return [row["rows"] for row in rows]


def published_keys(connection: Connection, dataset: str) -> list[PublishedKey]:
    rows = connection.execute(
        """
        SELECT DISTINCT ON (k.key COLLATE "C") k.key, k.window_start, k.window_end, r.bbox
        FROM kfm.keys k JOIN kfm.revisions r ON r.key = k.key
        WHERE k.dataset = %(dataset)s ORDER BY k.key COLLATE "C", r.revision DESC
        """,
        {"dataset": dataset},
    )
    return [PublishedKey(r["key"], r["window_start"], r["window_end"], box_from(r["bbox"])) for r in rows]


def current_revisions(connection: Connection, dataset: str) -> list[Revision]:
    """Of each key that anything is published of."""
    rows = connection.execute(
        """
        SELECT DISTINCT ON (r.key COLLATE "C") r.*
        FROM kfm.keys k JOIN kfm.revisions r ON r.key = k.key
        WHERE k.dataset = %(dataset)s ORDER BY r.key COLLATE "C", r.revision DESC
        """,
        {"dataset": dataset},
    )
    return [_revision(row) for row in rows]


def newest_revisions(database: Database, dataset: str, *, days: int) -> list[Revision]:
    """The current revision of each key whose window lies in the last so many days that anything is published of, the
    newest window first."""
    rows = database.fetch(
        """
        SELECT r.*
        FROM (SELECT key, window_end, max(window_end) OVER () AS newest FROM kfm.keys k
              WHERE dataset = %(dataset)s AND EXISTS (SELECT FROM kfm.revisions WHERE key = k.key)) k
        JOIN LATERAL (SELECT * FROM kfm.revisions WHERE key = k.key ORDER BY revision DESC LIMIT 1) r ON true
        WHERE k.window_end > k.newest - make_interval(days => %(days)s)
        ORDER BY k.window_end DESC, k.key
        """,
        {"dataset": dataset, "days": days},
    )
    return [_revision(row) for row in rows]


def lock_current_revision(connection: Connection, key: str) -> Revision | None:
    """The current one, once a publication that is under way has ended; none begins until the transaction ends."""
    connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR SHARE", {"key": key})
    row = connection.execute(
        "SELECT * FROM kfm.revisions WHERE key = %(key)s ORDER BY revision DESC LIMIT 1", {"key": key}
    ).fetchone()
    return _revision(row) if row else None


def mark_collection_changed(connection: Connection, dataset: str) -> None:
    """Say that the dataset's collection has to be written anew."""
    connection.execute(
        """
        INSERT INTO kfm.collections (dataset, changed) VALUES (%(dataset)s, 1)
        ON CONFLICT (dataset) DO UPDATE SET changed = kfm.collections.changed + 1
        """,
        {"dataset": dataset},
    )


def _insert(connection: Connection, new: Revision) -> None:
    connection.execute(
        """
        INSERT INTO kfm.revisions
            (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, bbox, run_id)
        VALUES (%(key)s, %(revision)s, %(txn)s, %(inputs_hash)s, %(fingerprint)s, %(content_hash)s, %(item_hash)s,
                %(rows)s, %(bytes)s, %(bbox)s, %(run_id)s)
        """,
        {
            "key": new.key,
            "revision": new.revision,
            "txn": new.txn,
            "inputs_hash": new.inputs_hash,
            "fingerprint": new.fingerprint,
            "content_hash": new.content_hash,
            "item_hash": new.item_hash,
            "rows": new.rows,
            "bytes": new.bytes,
            "bbox": list(new.bbox) if new.bbox else None,
            "run_id": new.run_id,
        },
    )


def _revision(row: Mapping[str, Any]) -> Revision:
    return Revision(
        key=row["key"],
        revision=row["revision"],
        txn=row["txn"],
        inputs_hash=row["inputs_hash"],
        fingerprint=row["fingerprint"],
        content_hash=row["content_hash"],
        item_hash=row["item_hash"],
        rows=row["rows"],
        bytes=row["bytes"],
        bbox=box_from(row["bbox"]),
        run_id=row["run_id"],
    )


@dataclass(frozen=True, slots=True)
class RecordDigests:
    """Digests of what tells how a revision came about; None of what was staged before there was such a record."""

    manifest_hash: str | None
    attestation_hash: str | None


def record_in_ledger(connection: Connection, dataset: str, revision: Revision, records: RecordDigests) -> None:
    """Once for a transaction: whoever rolls it forward commits it, so it is entered by the commit and nowhere else."""
    connection.execute(
        """
        INSERT INTO kfm.ledger (run_id, dataset, key, revision, txn, content_hash, item_hash, manifest_hash,
                                attestation_hash, rows, bytes)
        VALUES (%(run_id)s, %(dataset)s, %(key)s, %(revision)s, %(txn)s, %(content_hash)s, %(item_hash)s, %(manifest)s,
                %(attestation)s, %(rows)s, %(bytes)s)
        """,
        {
            "run_id": revision.run_id,
            "dataset": dataset,
            "key": revision.key,
            "revision": revision.revision,
            "txn": revision.txn,
            "content_hash": revision.content_hash,
            "item_hash": revision.item_hash,
            "manifest": records.manifest_hash,
            "attestation": records.attestation_hash,
            "rows": revision.rows,
            "bytes": revision.bytes,
        },
    )
