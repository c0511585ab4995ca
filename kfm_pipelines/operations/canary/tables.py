"""Comparisons: what a candidate transform made of a key, next to what is published of it. Kept once for each candidate
and each published content: the newest, until one is good."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.state.database import Database, jsonb


@dataclass(frozen=True, slots=True)
class KeyComparison:
    """`report` has names, counts and differences, never a value of the data; of what is masked or reviewed only names
    and whether they are close enough."""

    dataset: str
    key: str
    candidate_version: str
    candidate_digest: str
    content_hash: str  # of what was published at the time
    good: bool
    report: Mapping[str, Any]
    run_id: str

    @property
    def is_empty(self) -> bool:
        """Neither what is published nor what the candidate made has a row."""
        return bool(self.report.get("empty"))


def record_comparison(database: Database, comparison: KeyComparison) -> None:
    database.execute(
        """
        INSERT INTO kfm.comparisons
            (dataset, key, candidate_version, candidate_digest, content_hash, good, report, run_id)
        VALUES (%(dataset)s, %(key)s, %(candidate_version)s, %(candidate_digest)s, %(content_hash)s, %(good)s,
                %(report)s, %(run_id)s)
        ON CONFLICT (key, candidate_digest, content_hash) DO UPDATE
        SET good = excluded.good, report = excluded.report, run_id = excluded.run_id, at = clock_timestamp()
        WHERE NOT comparisons.good
        """,
        {
            "dataset": comparison.dataset,
            "key": comparison.key,
            "candidate_version": comparison.candidate_version,
            "candidate_digest": comparison.candidate_digest,
            "content_hash": comparison.content_hash,
            "good": comparison.good,
            "report": jsonb(dict(comparison.report)),
            "run_id": comparison.run_id,
        },
    )


def find_comparison(database: Database, key: str, candidate_digest: str, content_hash: str) -> KeyComparison | None:
    rows = database.fetch(
        "SELECT * FROM kfm.comparisons WHERE key = %(key)s AND candidate_digest = %(candidate_digest)s"
        " AND content_hash = %(content_hash)s",
        {"key": key, "candidate_digest": candidate_digest, "content_hash": content_hash},
    )
    return _comparison_from_row(rows[0]) if rows else None


def comparisons_with_current(database: Database, dataset: str, candidate_digest: str) -> list[KeyComparison]:
    """Those with what is published now, in the order of keys. One with an earlier revision says nothing any more."""
    rows = database.fetch(
        """
        SELECT c.* FROM kfm.comparisons c
        WHERE c.dataset = %(dataset)s AND c.candidate_digest = %(candidate_digest)s
          AND c.content_hash = (
              SELECT r.content_hash FROM kfm.revisions r WHERE r.key = c.key ORDER BY r.revision DESC LIMIT 1)
        ORDER BY c.key
        """,
        {"dataset": dataset, "candidate_digest": candidate_digest},
    )
    return [_comparison_from_row(row) for row in rows]


def _comparison_from_row(row: Mapping[str, Any]) -> KeyComparison:
    return KeyComparison(
        dataset=row["dataset"],
        key=row["key"],
        candidate_version=row["candidate_version"],
        candidate_digest=row["candidate_digest"],
        content_hash=row["content_hash"],
        good=row["good"],
        report=row["report"],
        run_id=row["run_id"],
    )


@dataclass(frozen=True, slots=True)
class Promotion:
    dataset: str
    from_version: str
    to_version: str
    candidate_digest: str
    actor: str
    reason: str
    report: Mapping[str, Any]


def record_promotion(database: Database, promotion: Promotion) -> None:
    database.execute(
        """
        INSERT INTO kfm.promotions (dataset, from_version, to_version, candidate_digest, actor, reason, report)
        VALUES (%(dataset)s, %(from_version)s, %(to_version)s, %(candidate_digest)s, %(actor)s, %(reason)s, %(report)s)
        """,
        {
            "dataset": promotion.dataset,
            "from_version": promotion.from_version,
            "to_version": promotion.to_version,
            "candidate_digest": promotion.candidate_digest,
            "actor": promotion.actor,
            "reason": promotion.reason,
            "report": jsonb(dict(promotion.report)),
        },
    )


def count_unsettled_keys(database: Database, dataset: str, transform_version: str) -> int:
    """How many keys of this version are due, being worked on or waiting for a review."""
    [row] = database.fetch(
        """
        SELECT count(*) AS keys FROM kfm.keys
        WHERE dataset = %(dataset)s AND split_part(key, ':', 5) = %(version)s
          AND (due_at IS NOT NULL OR owner IS NOT NULL OR awaiting IS NOT NULL)
        """,
        {"dataset": dataset, "version": transform_version},
    )
    return int(row["keys"])
