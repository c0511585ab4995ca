"""SQL over comparisons and promotions. Per candidate and content the newest is kept, until one is good."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kfm_pipelines.state.database import Database, insert_rows, jsonb


@dataclass(frozen=True, slots=True)
class KeyComparison:
    """`report` holds no value of the data; for masked or reviewed data not even the size of a difference."""

    dataset: str
    key: str
    candidate_version: str
    candidate_digest: str
    content_hash: str  # of what was published at the time
    good: bool
    report: Mapping[str, Any]
    run_id: str


def record_comparison(database: Database, comparison: KeyComparison) -> None:
    statement = """
        INSERT INTO kfm.comparisons
            (dataset, key, candidate_version, candidate_digest, content_hash, good, report, run_id)
        VALUES (%(dataset)s, %(key)s, %(candidate_version)s, %(candidate_digest)s, %(content_hash)s, %(good)s,
                %(report)s, %(run_id)s)
        ON CONFLICT (key, candidate_digest, content_hash) DO UPDATE
        SET good = excluded.good, report = excluded.report, run_id = excluded.run_id, at = clock_timestamp()
        WHERE NOT comparisons.good
    """
    database.execute(statement, {**asdict(comparison), "report": jsonb(dict(comparison.report))})


def find_comparison(database: Database, key: str, candidate_digest: str, content_hash: str) -> KeyComparison | None:
    rows = database.fetch(
        "SELECT * FROM kfm.comparisons WHERE key = %(key)s AND candidate_digest = %(candidate_digest)s"
        " AND content_hash = %(content_hash)s",
        {"key": key, "candidate_digest": candidate_digest, "content_hash": content_hash},
    )
    return _comparison_from_row(rows[0]) if rows else None


def comparisons_with_current(database: Database, dataset: str, candidate_digest: str) -> list[KeyComparison]:
    """Returns comparisons with the current revisions, ordered by key. Those with earlier revisions no longer count."""
    query = """
        SELECT c.* FROM kfm.comparisons c
        WHERE c.dataset = %(dataset)s AND c.candidate_digest = %(candidate_digest)s
          AND c.content_hash = (
              SELECT r.content_hash FROM kfm.revisions r WHERE r.key = c.key ORDER BY r.revision DESC LIMIT 1)
        ORDER BY c.key
    """
    rows = database.fetch(query, {"dataset": dataset, "candidate_digest": candidate_digest})
    return [_comparison_from_row(row) for row in rows]


def _comparison_from_row(row: Mapping[str, Any]) -> KeyComparison:
    return KeyComparison(**{name: row[name] for name in KeyComparison.__dataclass_fields__})


def record_promotion(database: Database, report: Mapping[str, Any], actor: str, reason: str) -> None:
    about = {name: report[name] for name in ("dataset", "from_version", "candidate_digest")}
    decision = {"to_version": report["candidate_version"], "actor": actor, "reason": reason, "report": report}
    with database.transaction() as connection:
        insert_rows(connection, "promotions", [about | decision])


def count_unsettled_keys(database: Database, dataset: str, transform_version: str) -> int:
    """Counts the keys of this version that are due, in a run or awaiting review."""
    query = """
        SELECT count(*) AS keys FROM kfm.keys
        WHERE dataset = %(dataset)s AND split_part(key, ':', 5) = %(version)s
          AND (due_at IS NOT NULL OR owner IS NOT NULL OR awaiting IS NOT NULL)
    """
    [row] = database.fetch(query, {"dataset": dataset, "version": transform_version})
    return int(row["keys"])
