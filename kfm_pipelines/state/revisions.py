"""Revisions: what is published for each key, in the order it was applied, and the objects it was made from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self

from kfm_pipelines.declarations.identity import BBox, box_from
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.state.database import Connection, Database, insert_rows, pairs


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


_LEDGER_COLUMNS = ("run_id", "key", "revision", "txn", "content_hash", "item_hash", "rows", "bytes")
_CURRENT = "SELECT * FROM kfm.revisions WHERE key = %(key)s ORDER BY revision DESC LIMIT 1"


def current_revision(database: Database, key: str) -> Revision | None:
    rows = database.fetch(_CURRENT, {"key": key})
    return Revision.from_values(rows[0]) if rows else None


def lock_current_revision(connection: Connection, key: str) -> Revision | None:
    """Returns the current revision after any running publication has ended; none begins until the transaction ends."""
    connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR SHARE", {"key": key})
    row = connection.execute(_CURRENT, {"key": key}).fetchone()
    return Revision.from_values(row) if row else None


def record_revisions(connection: Connection, revisions: Sequence[Revision]) -> None:
    """Inserts revisions of different keys. One being restored must have the same bytes; its Item names the software, so
    may differ."""
    asked = {"keys": [one.key for one in revisions], "revisions": [one.revision for one in revisions]}
    query = """
        SELECT key, content_hash FROM kfm.revisions
        JOIN unnest(%(keys)s::text[], %(revisions)s::integer[]) AS asked (key, revision) USING (key, revision)
    """
    rows = connection.execute(query, asked)
    restored = {row["key"]: row["content_hash"] for row in rows}
    for one in revisions:
        if restored.get(one.key, one.content_hash) != one.content_hash:
            raise IntegrityBroken(
                f"{one.key}: revision {one.revision} came out as {one.content_hash[:12]}, not {restored[one.key][:12]}"
            )
    statement = """
        UPDATE kfm.revisions r SET item_hash = asked.item_hash
        FROM unnest(%(keys)s::text[], %(revisions)s::integer[], %(items)s::text[]) AS asked (key, revision, item_hash)
        WHERE r.key = asked.key AND r.revision = asked.revision AND r.item_hash <> asked.item_hash
    """
    connection.execute(statement, {**asked, "items": [one.item_hash for one in revisions]})
    insert_rows(connection, "revisions", [asdict(one) for one in revisions if one.key not in restored])


def record_in_ledger(connection: Connection, dataset: str, records: Mapping[Revision, Mapping[str, str]]) -> None:
    """Records publications with the digests of their manifest and attestation, which early ones do not have."""
    rows = [
        {
            **{name: value for name, value in asdict(one).items() if name in _LEDGER_COLUMNS},
            "dataset": dataset,
            "manifest_hash": digests.get("manifest"),
            "attestation_hash": digests.get("attestation"),
        }
        for one, digests in records.items()
    ]
    insert_rows(connection, "ledger", rows)


def mark_collection_changed(connection: Connection, dataset: str) -> None:
    statement = """
        INSERT INTO kfm.collections (dataset, changed) VALUES (%(dataset)s, 1)
        ON CONFLICT (dataset) DO UPDATE SET changed = kfm.collections.changed + 1
    """
    connection.execute(statement, {"dataset": dataset})


def neighbour_rows(database: Database, keys: Sequence[str], windows: int) -> dict[str, tuple[int, ...]]:
    """Returns the row counts of up to `windows` published windows on either side of each key, of the same transform
    version and tile or station, if the dataset has such."""
    # Without OFFSET 0 the planner turns the look at each neighbour into a join over all of them.
    query = """
        SELECT mine.key, array_agg(
                   (SELECT rows FROM kfm.revisions r WHERE r.key = near.key ORDER BY r.revision DESC LIMIT 1)) AS rows
        FROM kfm.keys mine, LATERAL (
            (SELECT k.key FROM kfm.keys k
             WHERE k.dataset = mine.dataset AND k.window_start < mine.window_start
               AND split_part(k.key, ':', 5) = split_part(mine.key, ':', 5)
               AND split_part(k.key, ':', 2) = split_part(mine.key, ':', 2)
               AND EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key OFFSET 0)
             ORDER BY k.window_start DESC LIMIT %(windows)s)
            UNION ALL
            (SELECT k.key FROM kfm.keys k
             WHERE k.dataset = mine.dataset AND k.window_start > mine.window_start
               AND split_part(k.key, ':', 5) = split_part(mine.key, ':', 5)
               AND split_part(k.key, ':', 2) = split_part(mine.key, ':', 2)
               AND EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key OFFSET 0)
             ORDER BY k.window_start LIMIT %(windows)s)
        ) AS near
        WHERE mine.key = ANY(%(keys)s) GROUP BY mine.key
    """
    rows = database.fetch(query, {"keys": list(keys), "windows": windows})
    return {row["key"]: tuple(row["rows"]) for row in rows}


def published_keys(connection: Connection, dataset: str, page: str | None = None) -> list[PublishedKey]:
    """Returns the published keys of a dataset, or of one page of its collection, ordered by key."""
    query = """
        SELECT r.*, k.window_start, k.window_end
        FROM kfm.keys k
        JOIN LATERAL (SELECT * FROM kfm.revisions WHERE key = k.key ORDER BY revision DESC LIMIT 1) r ON true
        WHERE k.dataset = %(dataset)s AND (%(page)s::text IS NULL OR kfm.page_of(k.key) = %(page)s)
        ORDER BY k.key COLLATE "C"
    """
    rows = connection.execute(query, {"dataset": dataset, "page": page})
    return [PublishedKey.from_values(row) for row in rows]


def newest_keys(database: Database) -> dict[str, str]:
    """Returns the published key with the newest window of each dataset."""
    query = """
        SELECT DISTINCT ON (dataset) dataset, key FROM kfm.keys k
        WHERE EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key)
        ORDER BY dataset, window_end DESC, key
    """
    return pairs(database.fetch(query))


def newest_revisions(database: Database, dataset: str, *, days: int) -> list[Revision]:
    """Returns the current revisions of the last `days` days of published windows, newest window first."""
    query = """
        SELECT r.*
        FROM (SELECT key, window_end, max(window_end) OVER () AS newest FROM kfm.keys k
              WHERE dataset = %(dataset)s AND EXISTS (SELECT FROM kfm.revisions WHERE key = k.key)) k
        JOIN LATERAL (SELECT * FROM kfm.revisions WHERE key = k.key ORDER BY revision DESC LIMIT 1) r ON true
        WHERE k.window_end > k.newest - make_interval(days => %(days)s)
        ORDER BY k.window_end DESC, k.key
    """
    rows = database.fetch(query, {"dataset": dataset, "days": days})
    return [Revision.from_values(row) for row in rows]


def processed_objects(database: Database, key: str) -> dict[str, ProcessedObject]:
    """Returns the objects in the key's current revision, by URI."""
    rows = database.fetch("SELECT asset_uri, etag, version_id FROM kfm.ingest_state WHERE key = %(key)s", {"key": key})
    return {row["asset_uri"]: ProcessedObject(**row) for row in rows}


def record_processed(connection: Connection, dataset: str, inputs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Records these objects of each key, and no others, as those of the revision being committed."""
    # In one order, so that two processes cannot deadlock.
    ordered = sorted((str(one["uri"]), key, one) for key, objects in inputs.items() for one in objects)
    objects = {"keys": [key for _, key, _ in ordered], "uris": [uri for uri, _, _ in ordered]}
    statement = """
        DELETE FROM kfm.ingest_state s WHERE s.key = ANY(%(committed)s) AND NOT EXISTS (
            SELECT FROM unnest(%(keys)s::text[], %(uris)s::text[]) AS kept (key, uri)
            WHERE kept.key = s.key AND kept.uri = s.asset_uri)
    """
    connection.execute(statement, {**objects, "committed": list(inputs)})
    statement = """
        INSERT INTO kfm.ingest_state AS known (dataset, key, asset_uri, etag, version_id, sequencer)
        SELECT %(dataset)s, * FROM unnest(
            %(keys)s::text[], %(uris)s::text[], %(etags)s::text[], %(versions)s::text[], %(sequencers)s::text[])
        ON CONFLICT (dataset, asset_uri, key) DO UPDATE SET
            etag = excluded.etag, version_id = excluded.version_id, sequencer = excluded.sequencer,
            processed_at = clock_timestamp()
    """
    parameters = {
        **objects,
        "dataset": dataset,
        "etags": [one["etag"] for _, _, one in ordered],
        "versions": [one["version"] for _, _, one in ordered],
        "sequencers": [one.get("sequencer") for _, _, one in ordered],
    }
    connection.execute(statement, parameters)


def count_fetches(database: Database, dataset: str, fetches: FetchCounts) -> None:
    if fetches != FetchCounts():
        statement = """
            INSERT INTO kfm.fetch_totals AS t (dataset, hits, misses) VALUES (%(dataset)s, %(hits)s, %(misses)s)
            ON CONFLICT (dataset) DO UPDATE SET hits = t.hits + excluded.hits, misses = t.misses + excluded.misses
        """
        database.execute(statement, {"dataset": dataset, "hits": fetches.hits, "misses": fetches.misses})
