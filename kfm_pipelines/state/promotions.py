"""Promotions: who made a candidate the declared version, why, and what the comparisons said. Kept for ever."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.state.database import Database


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
    from psycopg.types.json import Jsonb

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
            "report": Jsonb(dict(promotion.report)),
        },
    )


def unsettled_keys(database: Database, dataset: str, transform_version: str) -> int:
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
