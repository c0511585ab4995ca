"""SQL over the keys and batches of a replay. Outcomes are read from the log, so the two cannot disagree."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.operations.replay.eligible import inherit_inputs
from kfm_pipelines.state.database import Database, pairs
from kfm_pipelines.state.replays import record_move

# The last entry of each transaction begun for a replay, one per key: an outcome first, then the latest transaction.
LAST_WAL_ENTRIES = """
    SELECT DISTINCT ON (b.key) b.key, b.at AS begun_at, last.outcome, last.detail
    FROM kfm.wal b
    JOIN LATERAL (SELECT w.outcome, w.detail FROM kfm.wal w
                  WHERE w.key = b.key AND w.txn = b.txn ORDER BY w.id DESC LIMIT 1) last ON true
    WHERE b.step = 'begin' AND b.detail ? 'replay' AND b.detail ->> 'replay' = %(replay)s
    ORDER BY b.key, last.outcome IN ('APPLIED', 'SKIPPED') DESC NULLS LAST, b.id DESC
"""


@dataclass(frozen=True, slots=True)
class KeyState:
    key: str
    source: str | None
    canary: bool
    state: str
    why: str
    batch: int | None
    attempts: int
    outcome: str | None
    comparison: Mapping[str, Any] | None
    telemetry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """Keys asked for together. `backfill` is the id of the Dagster backfill that runs them."""

    replay: str
    batch: int
    backfill: str
    keys: tuple[str, ...]


def keys_of(database: Database, replay: str, *, states: Sequence[str] | None = None) -> list[KeyState]:
    query = """
        SELECT key, source, canary, state, why, batch, attempts, outcome, comparison, telemetry
        FROM kfm.replay_keys WHERE replay = %(replay)s AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s))
        ORDER BY place
    """
    rows = database.fetch(query, {"replay": replay, "states": None if states is None else list(states)})
    return [KeyState(**row) for row in rows]


def count_states(database: Database, replay: str) -> dict[str, int]:
    query = "SELECT state, count(*) AS n FROM kfm.replay_keys WHERE replay = %(replay)s GROUP BY state"
    return pairs(database.fetch(query, {"replay": replay}))


def count_outcomes(database: Database, replay: str) -> dict[str, int]:
    query = """
        SELECT outcome, count(*) AS n FROM kfm.replay_keys WHERE replay = %(replay)s AND outcome IS NOT NULL
        GROUP BY outcome ORDER BY outcome
    """
    return pairs(database.fetch(query, {"replay": replay}))


def count_without_data(database: Database, replay: str) -> int:
    """Counts the keys that are done but have no object that counts and nothing published."""
    query = """
        SELECT count(*) AS n FROM kfm.replay_keys r WHERE replay = %(replay)s AND outcome = 'SKIPPED'
          AND NOT EXISTS (SELECT FROM kfm.revisions v WHERE v.key = r.key)
    """
    [row] = database.fetch(query, {"replay": replay})
    return int(row["n"])


def settle_keys(database: Database, replay: str) -> int:
    """Returns how many keys changed. One that awaits review is done: the replay can do no more for it."""
    statement = f"""
        WITH last AS ({LAST_WAL_ENTRIES})
        UPDATE kfm.replay_keys r SET state = 'done', changed_at = clock_timestamp(),
            outcome = coalesce(last.outcome, 'AWAITING_REVIEW'),
            why = coalesce(last.detail ->> 'reason', 'revision ' || (last.detail ->> 'revision'), r.why)
        FROM last JOIN kfm.keys k ON k.key = last.key
        WHERE r.replay = %(replay)s AND r.key = last.key AND r.state IN ('asked', 'waiting') AND r.batch IS NOT NULL
          AND (last.outcome IN ('APPLIED', 'SKIPPED')
               OR (last.outcome IS NULL AND k.awaiting IS NOT NULL AND k.owner IS NULL))
    """  # noqa: S608 - a constant
    return database.execute(statement, {"replay": replay})


def read_failure_reasons(database: Database, replay: str) -> dict[str, str]:
    query = """
        SELECT DISTINCT ON (b.key) b.key, f.detail ->> 'reason' AS reason
        FROM kfm.wal b JOIN kfm.wal f ON f.key = b.key AND f.txn = b.txn AND f.step = 'fail'
        WHERE b.step = 'begin' AND b.detail ? 'replay' AND b.detail ->> 'replay' = %(replay)s
          AND NOT f.detail ? 'spared'
        ORDER BY b.key, f.id DESC
    """
    return pairs(database.fetch(query, {"replay": replay}))


def record_telemetry(database: Database, replay: str, records: Mapping[str, Mapping[str, object]]) -> None:
    statement = """
        UPDATE kfm.replay_keys r SET telemetry = t.record::jsonb
        FROM unnest(%(keys)s::text[], %(records)s::text[]) AS t (key, record)
        WHERE r.replay = %(replay)s AND r.key = t.key
    """
    parameters = {"replay": replay, "keys": list(records), "records": [json.dumps(one) for one in records.values()]}
    database.execute(statement, parameters)


def quarantine(database: Database, replay: str, reasons: Mapping[str, str], actor: str) -> None:
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.replay_keys r SET state = 'quarantined', outcome = 'FAILED', changed_at = clock_timestamp(),
                why = q.why
            FROM unnest(%(keys)s::text[], %(why)s::text[]) AS q (key, why)
            WHERE r.replay = %(replay)s AND r.key = q.key AND r.state = 'waiting'
            RETURNING r.key, r.why, r.attempts
        """
        parameters = {"replay": replay, "keys": list(reasons), "why": list(reasons.values())}
        moved = connection.execute(statement, parameters).fetchall()
        for row in moved:
            detail = {"key": row["key"], "attempts": row["attempts"], "reason": row["why"]}
            record_move(connection, replay, "key-quarantined", actor, detail)


def find_open_batch(database: Database, replay: str) -> ReplayBatch | None:
    """Returns the batch that has not ended, with its keys that have no outcome yet."""
    query = """
        SELECT b.replay, b.batch, b.backfill,
               ARRAY(SELECT key FROM kfm.replay_keys k WHERE k.replay = b.replay AND k.batch = b.batch
                     AND k.state = 'asked' ORDER BY place) AS keys
        FROM kfm.replay_batches b WHERE replay = %(replay)s AND ended_at IS NULL ORDER BY batch LIMIT 1
    """
    rows = database.fetch(query, {"replay": replay})
    return ReplayBatch(**{**rows[0], "keys": tuple(rows[0]["keys"])}) if rows else None


def batches_of(database: Database, replay: str) -> list[dict[str, Any]]:
    query = """
        SELECT batch, backfill, keys, asked_at, ended_at FROM kfm.replay_batches
        WHERE replay = %(replay)s ORDER BY batch
    """
    return database.fetch(query, {"replay": replay})


def seconds_since_batch(database: Database, replay: str, now: datetime | None = None) -> tuple[int, float] | None:
    """Returns the size of the last batch and its age, by the database's clock unless `now` is given."""
    query = """
        SELECT keys, extract(epoch FROM coalesce(%(now)s::timestamptz, clock_timestamp()) - asked_at)::float AS seconds
        FROM kfm.replay_batches WHERE replay = %(replay)s ORDER BY batch DESC LIMIT 1
    """
    rows = database.fetch(query, {"replay": replay, "now": now})
    return (rows[0]["keys"], rows[0]["seconds"]) if rows else None


def create_batch(database: Database, replay: str, limit: int, actor: str) -> ReplayBatch | None:
    """Commits a batch before Dagster is asked. Failed keys come last: one hands back its whole batch."""
    with database.transaction() as connection:
        if not connection.execute(
            "SELECT FROM kfm.replays WHERE id = %(replay)s AND state = 'running' FOR UPDATE", {"replay": replay}
        ).fetchall():
            return None
        query = """
            SELECT r.key FROM kfm.replay_keys r JOIN kfm.keys k ON k.key = r.key
            WHERE r.replay = %(replay)s AND r.state = 'waiting'
              AND (k.owner IS NULL OR k.lease_until < clock_timestamp())
              AND r.attempts = (SELECT min(attempts) FROM kfm.replay_keys w
                                WHERE w.replay = %(replay)s AND w.state = 'waiting')
            ORDER BY r.place LIMIT %(limit)s FOR NO KEY UPDATE OF r
        """
        rows = connection.execute(query, {"replay": replay, "limit": limit}).fetchall()
        if not rows:
            return None
        keys = [row["key"] for row in rows]
        inherit_inputs(connection, replay, keys)
        statement = """
            INSERT INTO kfm.replay_batches (replay, batch, backfill, keys)
            SELECT %(replay)s, n, %(replay)s || '-' || n, %(keys)s
            FROM (SELECT coalesce(max(batch), 0) + 1 AS n FROM kfm.replay_batches WHERE replay = %(replay)s) AS next
            RETURNING batch, backfill
        """
        [row] = connection.execute(statement, {"replay": replay, "keys": len(keys)}).fetchall()
        statement = """
            UPDATE kfm.replay_keys SET state = 'asked', batch = %(batch)s, changed_at = clock_timestamp()
            WHERE replay = %(replay)s AND key = ANY(%(keys)s)
        """
        connection.execute(statement, {"replay": replay, "batch": row["batch"], "keys": keys})
        record_move(connection, replay, "batch-asked", actor, {**row, "keys": len(keys)})
    return ReplayBatch(replay, row["batch"], row["backfill"], tuple(keys))


def end_batch(database: Database, batch: ReplayBatch, *, ignore_failures: bool) -> None:
    """Ends a batch and returns its unsettled keys to the queue. A key that was begun and not finished counts as failed,
    unless it was handed back because of another key, another run holds it, or `ignore_failures` is set because the
    cause lies outside the keys."""
    parameters = {"replay": batch.replay, "batch": batch.batch, "blameless": ignore_failures}
    with database.transaction() as connection:
        statement = """
            UPDATE kfm.replay_batches SET ended_at = clock_timestamp()
            WHERE replay = %(replay)s AND batch = %(batch)s AND ended_at IS NULL
        """
        ended = connection.execute(statement, parameters).rowcount
        if not ended:
            return
        statement = f"""
            WITH last AS ({LAST_WAL_ENTRIES}),
            left_over AS (
                SELECT r.key, last.detail,
                       NOT %(blameless)s AND last.begun_at >= b.asked_at IS TRUE
                       AND (k.owner IS NULL OR k.lease_until <= clock_timestamp())
                       AND last.detail ? 'spared' IS NOT TRUE AS failed
                FROM kfm.replay_keys r JOIN kfm.keys k ON k.key = r.key LEFT JOIN last ON last.key = r.key
                     JOIN kfm.replay_batches b ON b.replay = r.replay AND b.batch = r.batch
                WHERE r.replay = %(replay)s AND r.batch = %(batch)s AND r.state = 'asked'
            )
            UPDATE kfm.replay_keys r SET state = 'waiting', changed_at = clock_timestamp(),
                attempts = r.attempts + o.failed::int,
                why = CASE WHEN o.failed THEN coalesce(o.detail ->> 'reason', 'its run ended without a word about it')
                           ELSE r.why END
            FROM left_over o WHERE r.replay = %(replay)s AND r.key = o.key
            RETURNING o.failed
        """  # noqa: S608 - a constant
        left_over = connection.execute(statement, parameters).fetchall()
        query = "SELECT FROM kfm.replay_keys WHERE replay = %(replay)s AND batch = %(batch)s AND state = 'done' LIMIT 1"
        settled = connection.execute(query, parameters).rowcount
        if not settled and not any(row["failed"] for row in left_over):
            record_move(connection, batch.replay, "batch-fruitless", "kfm", {"batch": batch.batch})


def made_no_progress(database: Database, replay: str, number: int) -> bool:
    """Returns whether the last `number` batches since the start ended without outcome or failure."""
    query = """
        SELECT what FROM kfm.replay_moves
        WHERE replay = %(replay)s AND what IN ('started', 'resumed', 'batch-asked', 'batch-fruitless')
        ORDER BY id DESC LIMIT %(number)s
    """
    rows = database.fetch(query, {"replay": replay, "number": 2 * number})
    return [row["what"] for row in rows] == ["batch-fruitless", "batch-asked"] * number
