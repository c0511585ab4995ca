"""Latency, failures and freshness over the last minutes and hours. Read-only.

Every query uses an index on time, so that its cost does not grow with the table. That needs `statement_timestamp()`:
Postgres uses no index for `clock_timestamp()`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kfm_pipelines.state.database import Database


@dataclass(frozen=True, slots=True)
class SettledCounts:
    """Keys settled in a period and how many failed; events settled and how many were slow."""

    keys: int
    failed: int
    events: int
    slow: int


def count_settled(database: Database, length: timedelta, slow_after_seconds: float) -> SettledCounts:
    """A key that will be retried has not failed yet. Replays have no sending time and do not count as events."""
    [row] = database.fetch(
        """
        SELECT (SELECT count(*) FROM kfm.wal WHERE at > statement_timestamp() - %(length)s::interval
                AND (outcome IN ('APPLIED', 'SKIPPED') OR outcome = 'FAILED' AND detail ? 'stage')) AS keys,
               (SELECT count(*) FROM kfm.wal WHERE at > statement_timestamp() - %(length)s::interval
                AND outcome = 'FAILED' AND detail ? 'stage') AS failed,
               count(sent_at) AS events,
               count(*) FILTER (WHERE settled_at - sent_at > make_interval(secs => %(seconds)s)) AS slow
        FROM kfm.inbox WHERE settled_at > statement_timestamp() - %(length)s::interval
        """,
        {"length": length, "seconds": slow_after_seconds},
    )
    return SettledCounts(row["keys"], row["failed"], row["events"], row["slow"])


def latency_quantiles(database: Database, length: timedelta, quantiles: Sequence[float]) -> list[float]:
    """Returns quantiles of the seconds from sent to settled; none when nothing was settled."""
    [row] = database.fetch(
        """
        SELECT percentile_cont(%(quantiles)s::float[]) WITHIN GROUP (
                   ORDER BY greatest(0, extract(epoch FROM settled_at - sent_at))) AS found
        FROM kfm.inbox WHERE settled_at > statement_timestamp() - %(length)s::interval AND sent_at IS NOT NULL
        """,
        {"length": length, "quantiles": list(quantiles)},
    )
    return [float(value) for value in row["found"] or ()]


def double_applies(database: Database, length: timedelta) -> dict[str, int]:
    """Counts revisions with the same inputs as the revision before, by dataset. Any is a broken guarantee."""
    rows = database.fetch(
        """
        WITH doubled AS MATERIALIZED (
            SELECT r.key FROM kfm.revisions r
            JOIN kfm.revisions b ON b.key = r.key AND b.revision = r.revision - 1 AND b.inputs_hash = r.inputs_hash
            WHERE r.applied_at > statement_timestamp() - %(length)s::interval
        )
        SELECT k.dataset, count(*) AS n FROM doubled JOIN kfm.keys k USING (key) GROUP BY k.dataset
        """,
        {"length": length},
    )
    return {row["dataset"]: row["n"] for row in rows}


def last_published(database: Database, datasets: Iterable[str]) -> dict[str, datetime]:
    rows = database.fetch(
        """
        SELECT d.dataset, l.at
        FROM unnest(%(datasets)s::text[]) AS d (dataset)
        CROSS JOIN LATERAL (SELECT at FROM kfm.ledger WHERE dataset = d.dataset ORDER BY id DESC LIMIT 1) l
        """,
        {"datasets": list(datasets)},
    )
    return {row["dataset"]: row["at"] for row in rows}


def letters_by_queue(database: Database) -> dict[str | None, int]:
    """Counts waiting dead letters by the queue of their message; None for letters of keys."""
    rows = database.fetch(
        "SELECT queue, count(*) AS n FROM kfm.dead_letters WHERE state IN ('open', 'redriving') GROUP BY queue"
    )
    return {row["queue"]: row["n"] for row in rows}
