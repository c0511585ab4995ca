"""Revisions: what is published for each key, in the order it was applied, and the objects it was made from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self

from kfm_pipelines.declarations.identity import BBox, box_from
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.state.database import Connection, Database


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDescription:
    """What every description of a release contains."""

    key: str
    revision: int
    inputs_hash: str
    fingerprint: str
    content_hash: str
    item_hash: str
    rows: int
    bytes: int
    bbox: BBox | None

    @classmethod
    def from_values(cls, values: Mapping[str, Any], **others: Any) -> Self:
        """Builds it from a row or a stored detail, which may hold more than its fields."""
        known = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        return cls(**{**known, "bbox": box_from(values["bbox"]), **others})


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision(ReleaseDescription):
    """One publication of a key."""

    txn: int
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedKey(Revision):
    """The current revision of a key, with the key's window."""

    window_start: datetime
    window_end: datetime


@dataclass(frozen=True, slots=True)
class ProcessedObject:
    """One object as it was when its key was published."""

    asset_uri: str
    etag: str | None
    version_id: str | None


@dataclass(frozen=True, slots=True)
class FetchCounts:
    """Objects known to be unchanged, and objects that had to be fetched."""

    hits: int = 0
    misses: int = 0

    def __add__(self, other: "FetchCounts") -> "FetchCounts":
        return FetchCounts(self.hits + other.hits, self.misses + other.misses)


_CURRENT = "SELECT * FROM kfm.revisions WHERE key = %(key)s ORDER BY revision DESC LIMIT 1"


def current_revision(database: Database, key: str) -> Revision | None:
    rows = database.fetch(_CURRENT, {"key": key})
    return Revision.from_values(rows[0]) if rows else None


def lock_current_revision(connection: Connection, key: str) -> Revision | None:
    """Returns the current revision after any running publication has ended; none begins until the transaction ends."""
    connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR SHARE", {"key": key})
    row = connection.execute(_CURRENT, {"key": key}).fetchone()
    return Revision.from_values(row) if row else None


def record_revision(connection: Connection, new: Revision) -> None:
    """Inserts the revision. One being restored must have the same bytes; its Item names the software, so may differ."""
    row = connection.execute(
        "SELECT * FROM kfm.revisions WHERE key = %(key)s AND revision = %(revision)s",
        {"key": new.key, "revision": new.revision},
    ).fetchone()
    if row is None:
        connection.execute(
            """
            INSERT INTO kfm.revisions
                (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, bbox, run_id)
            VALUES (%(key)s, %(revision)s, %(txn)s, %(inputs_hash)s, %(fingerprint)s, %(content_hash)s, %(item_hash)s,
                    %(rows)s, %(bytes)s, %(bbox)s, %(run_id)s)
            """,
            {**asdict(new), "bbox": list(new.bbox) if new.bbox else None},
        )
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


def record_in_ledger(
    connection: Connection, dataset: str, revision: Revision, manifest_hash: str | None, attestation_hash: str | None
) -> None:
    """Adds the publication to the ledger. The digests are None for what was staged before there were such records."""
    connection.execute(
        """
        INSERT INTO kfm.ledger (run_id, dataset, key, revision, txn, content_hash, item_hash, manifest_hash,
                                attestation_hash, rows, bytes)
        VALUES (%(run_id)s, %(dataset)s, %(key)s, %(revision)s, %(txn)s, %(content_hash)s, %(item_hash)s, %(manifest)s,
                %(attestation)s, %(rows)s, %(bytes)s)
        """,
        {**asdict(revision), "dataset": dataset, "manifest": manifest_hash, "attestation": attestation_hash},
    )


def mark_collection_changed(connection: Connection, dataset: str) -> None:
    connection.execute(
        """
        INSERT INTO kfm.collections (dataset, changed) VALUES (%(dataset)s, 1)
        ON CONFLICT (dataset) DO UPDATE SET changed = kfm.collections.changed + 1
        """,
        {"dataset": dataset},
    )


def neighbour_rows(database: Database, key: str, windows: int) -> list[int]:
    """Returns the row counts of up to `windows` published windows on either side, of the same transform version."""
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


def published_keys(connection: Connection, dataset: str, page: str | None = None) -> list[PublishedKey]:
    """Returns the published keys of a dataset, or of one page of its collection, ordered by key."""
    rows = connection.execute(
        """
        SELECT r.*, k.window_start, k.window_end
        FROM kfm.keys k
        JOIN LATERAL (SELECT * FROM kfm.revisions WHERE key = k.key ORDER BY revision DESC LIMIT 1) r ON true
        WHERE k.dataset = %(dataset)s AND (%(page)s::text IS NULL OR kfm.page_of(k.key) = %(page)s)
        ORDER BY k.key COLLATE "C"
        """,
        {"dataset": dataset, "page": page},
    )
    return [PublishedKey.from_values(row) for row in rows]


def newest_revisions(database: Database, dataset: str, *, days: int) -> list[Revision]:
    """Returns the current revisions of the last `days` days of published windows, newest window first."""
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
    return [Revision.from_values(row) for row in rows]


def processed_objects(database: Database, key: str) -> dict[str, ProcessedObject]:
    """Returns the objects in the key's current revision, by URI."""
    rows = database.fetch("SELECT asset_uri, etag, version_id FROM kfm.ingest_state WHERE key = %(key)s", {"key": key})
    return {row["asset_uri"]: ProcessedObject(**row) for row in rows}


def record_processed(connection: Connection, dataset: str, key: str, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Records these objects, and no others, as those of the revision being committed."""
    ordered = sorted(inputs, key=lambda one: str(one["uri"]))
    uris = [one["uri"] for one in ordered]
    connection.execute(
        "DELETE FROM kfm.ingest_state WHERE key = %(key)s AND NOT asset_uri = ANY(%(uris)s)", {"key": key, "uris": uris}
    )
    connection.execute(
        """
        INSERT INTO kfm.ingest_state AS known (dataset, key, asset_uri, etag, version_id, sequencer)
        SELECT %(dataset)s, %(key)s, *
        FROM unnest(%(uris)s::text[], %(etags)s::text[], %(versions)s::text[], %(sequencers)s::text[])
        ON CONFLICT (dataset, asset_uri) DO UPDATE SET
            key = excluded.key, etag = excluded.etag, version_id = excluded.version_id,
            sequencer = excluded.sequencer, processed_at = clock_timestamp()
        """,
        {
            "dataset": dataset,
            "key": key,
            "uris": uris,
            "etags": [one["etag"] for one in ordered],
            "versions": [one["version"] for one in ordered],
            "sequencers": [one.get("sequencer") for one in ordered],
        },
    )


def count_fetches(database: Database, dataset: str, fetches: FetchCounts) -> None:
    if fetches != FetchCounts():
        database.execute(
            """
            INSERT INTO kfm.fetch_totals AS t (dataset, hits, misses) VALUES (%(dataset)s, %(hits)s, %(misses)s)
            ON CONFLICT (dataset) DO UPDATE SET hits = t.hits + excluded.hits, misses = t.misses + excluded.misses
            """,
            {"dataset": dataset, "hits": fetches.hits, "misses": fetches.misses},
        )
