"""What is known of each object: the content that is in what is published now, and how often it had to be fetched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.state.database import Connection, Database


@dataclass(frozen=True, slots=True)
class ProcessedObject:
    """One object as it was when its key was published."""

    asset_uri: str
    etag: str | None
    version_id: str | None


@dataclass(frozen=True, slots=True)
class FetchCounts:
    """Objects that were known to be unchanged, and objects that had to be fetched."""

    hits: int = 0
    misses: int = 0

    def __add__(self, other: "FetchCounts") -> "FetchCounts":
        return FetchCounts(self.hits + other.hits, self.misses + other.misses)


def processed_objects(database: Database, key: str) -> dict[str, ProcessedObject]:
    """The objects that the key's current revision was made of."""
    rows = database.fetch("SELECT asset_uri, etag, version_id FROM kfm.ingest_state WHERE key = %(key)s", {"key": key})
    return {row["asset_uri"]: ProcessedObject(row["asset_uri"], row["etag"], row["version_id"]) for row in rows}


def record_processed(connection: Connection, dataset: str, key: str, inputs: Sequence[Mapping[str, Any]]) -> None:
    """These objects, and no others, are in the revision being committed."""
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
