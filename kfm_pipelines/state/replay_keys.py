"""The keys of a replay, and the batches they were asked for in.

What became of a key is read from the write-ahead log: a transaction says which replay it was begun for, in the same
commit, so nothing has to be kept in step with it. A key with an outcome is never asked for again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.state.database import Database
from kfm_pipelines.state.replayable import take_inputs
from kfm_pipelines.state.replays import note_move

if TYPE_CHECKING:
    from psycopg import Connection

# Of every transaction that was begun for a replay, its last entry; the latest transaction of a key first.
_LAST_ENTRIES = """
    SELECT DISTINCT ON (b.key) b.key, b.at AS begun_at, last.outcome, last.detail
    FROM kfm.wal b
    JOIN LATERAL (SELECT w.outcome, w.detail FROM kfm.wal w
                  WHERE w.key = b.key AND w.txn = b.txn ORDER BY w.id DESC LIMIT 1) last ON true
    WHERE b.step = 'begin' AND b.detail ? 'replay' AND b.detail ->> 'replay' = %(replay)s
    ORDER BY b.key, last.outcome IN ('APPLIED', 'SKIPPED') DESC NULLS LAST, b.id DESC
"""


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    replay: str
    batch: int
    backfill: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key of a replay as it stands."""

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
    cpu_seconds: float


def keys_of(database: Database, replay: str, *, states: Sequence[str] | None = None) -> list[KeyState]:
    rows = database.fetch(
        """
        SELECT key, source, canary, state, why, batch, attempts, outcome, comparison, telemetry, cpu_seconds
        FROM kfm.replay_keys WHERE replay = %(replay)s AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s))
        ORDER BY place
        """,
        {"replay": replay, "states": None if states is None else list(states)},
    )
    return [KeyState(**row) for row in rows]


def count_states(database: Database, replay: str) -> dict[str, int]:
    rows = database.fetch(
        "SELECT state, count(*) AS n FROM kfm.replay_keys WHERE replay = %(replay)s GROUP BY state", {"replay": replay}
    )
    return {row["state"]: row["n"] for row in rows}


def count_outcomes(database: Database, replay: str) -> dict[str, int]:
    rows = database.fetch(
        """
        SELECT outcome, count(*) AS n FROM kfm.replay_keys WHERE replay = %(replay)s AND outcome IS NOT NULL
        GROUP BY outcome ORDER BY outcome
        """,
        {"replay": replay},
    )
    return {row["outcome"]: row["n"] for row in rows}


def open_batch(database: Database, replay: str) -> ReplayBatch | None:
    """The one that was asked for and is not over, with what of it has no outcome yet."""
    rows = database.fetch(
        """
        SELECT b.*, ARRAY(SELECT key FROM kfm.replay_keys k WHERE k.replay = b.replay AND k.batch = b.batch
                          AND k.state = 'asked' ORDER BY place) AS names
        FROM kfm.replay_batches b WHERE replay = %(replay)s AND ended_at IS NULL ORDER BY batch LIMIT 1
        """,
        {"replay": replay},
    )
    return _batch(rows[0]) if rows else None


def batches_of(database: Database, replay: str) -> list[dict[str, Any]]:
    return database.fetch(
        """
        SELECT batch, backfill, keys, asked_at, ended_at FROM kfm.replay_batches
        WHERE replay = %(replay)s ORDER BY batch
        """,
        {"replay": replay},
    )


def seconds_since_batch(database: Database, replay: str) -> tuple[int, float] | None:
    """How many keys the last batch had, and how long ago it was asked for."""
    rows = database.fetch(
        """
        SELECT keys, extract(epoch FROM clock_timestamp() - asked_at)::float AS seconds FROM kfm.replay_batches
        WHERE replay = %(replay)s ORDER BY batch DESC LIMIT 1
        """,
        {"replay": replay},
    )
    return (rows[0]["keys"], rows[0]["seconds"]) if rows else None


def ask_batch(database: Database, replay: str, limit: int, actor: str) -> ReplayBatch | None:
    """The next keys that nobody holds, bound to a batch of their own; None when there are none, or when the replay is
    not running any more: nobody moves it before this is committed. Those that have failed come last and share no batch
    with others, which would be handed back because of them. Committed before anything is asked of Dagster."""
    with database.transaction() as connection:
        if not connection.execute(
            "SELECT FROM kfm.replays WHERE id = %(replay)s AND state = 'running' FOR UPDATE", {"replay": replay}
        ).fetchall():
            return None
        rows = connection.execute(
            """
            SELECT r.key FROM kfm.replay_keys r JOIN kfm.keys k ON k.key = r.key
            WHERE r.replay = %(replay)s AND r.state = 'waiting'
              AND (k.owner IS NULL OR k.lease_until < clock_timestamp())
              AND r.attempts = (SELECT min(attempts) FROM kfm.replay_keys w
                                WHERE w.replay = %(replay)s AND w.state = 'waiting')
            ORDER BY r.place LIMIT %(limit)s FOR NO KEY UPDATE OF r
            """,
            {"replay": replay, "limit": limit},
        ).fetchall()
        if not rows:
            return None
        keys = [row["key"] for row in rows]
        take_inputs(connection, replay, keys)
        [row] = connection.execute(
            """
            INSERT INTO kfm.replay_batches (replay, batch, backfill, keys)
            SELECT %(replay)s, n, %(replay)s || '-' || n, %(keys)s
            FROM (SELECT coalesce(max(batch), 0) + 1 AS n FROM kfm.replay_batches WHERE replay = %(replay)s) AS next
            RETURNING batch, backfill
            """,
            {"replay": replay, "keys": len(keys)},
        ).fetchall()
        connection.execute(
            """
            UPDATE kfm.replay_keys SET state = 'asked', batch = %(batch)s, changed_at = clock_timestamp()
            WHERE replay = %(replay)s AND key = ANY(%(keys)s)
            """,
            {"replay": replay, "batch": row["batch"], "keys": keys},
        )
        asked = {"batch": row["batch"], "backfill": row["backfill"], "keys": len(keys)}
        note_move(connection, replay, "batch-asked", actor, asked)
    return ReplayBatch(replay, row["batch"], row["backfill"], tuple(keys))


def settle_keys(database: Database, replay: str) -> int:
    """Give every key that was asked for the outcome that the log has for it; how many got one. A release that waits for
    a person has had from the replay what it can give."""
    return database.execute(
        f"""
        WITH last AS ({_LAST_ENTRIES})
        UPDATE kfm.replay_keys r SET state = 'done', changed_at = clock_timestamp(),
            outcome = coalesce(last.outcome, 'AWAITING_REVIEW'),
            why = coalesce(last.detail ->> 'reason', 'revision ' || (last.detail ->> 'revision'), r.why)
        FROM last JOIN kfm.keys k ON k.key = last.key
        WHERE r.replay = %(replay)s AND r.key = last.key AND r.state IN ('asked', 'waiting') AND r.batch IS NOT NULL
          AND (last.outcome IN ('APPLIED', 'SKIPPED')
               OR (last.outcome IS NULL AND k.awaiting IS NOT NULL AND k.owner IS NULL))
        """,  # noqa: S608 - a constant
        {"replay": replay},
    )


def end_batch(database: Database, batch: ReplayBatch, *, blameless: bool = False) -> bool:
    """The batch is over, and what it has not settled waits for another. What it began and did not bring to an end has
    failed in it, unless it was only handed back for another's sake or somebody else holds it, or nothing that happened
    is the keys' fault. False when it was ended before."""
    parameters = {"replay": batch.replay, "batch": batch.batch, "blameless": blameless}
    with database.transaction() as connection:
        ended = connection.execute(
            """
            UPDATE kfm.replay_batches SET ended_at = clock_timestamp()
            WHERE replay = %(replay)s AND batch = %(batch)s AND ended_at IS NULL
            """,
            parameters,
        ).rowcount
        if not ended:
            return False
        left_over = connection.execute(
            f"""
            WITH last AS ({_LAST_ENTRIES}),
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
            """,  # noqa: S608 - a constant
            parameters,
        ).fetchall()
        if not any(row["failed"] for row in left_over) and not _has_outcomes(connection, batch):
            note_move(connection, batch.replay, "batch-fruitless", "kfm", {"batch": batch.batch})
    return True


def _has_outcomes(connection: "Connection[dict[str, Any]]", batch: ReplayBatch) -> bool:
    rows = connection.execute(
        """
        SELECT FROM kfm.replay_keys WHERE replay = %(replay)s AND batch = %(batch)s AND state = 'done' LIMIT 1
        """,
        {"replay": batch.replay, "batch": batch.batch},
    ).fetchall()
    return bool(rows)


def came_to_nothing(database: Database, replay: str, most: int) -> bool:
    """Whether the last so many batches, since somebody started or resumed it, all came to nothing."""
    rows = database.fetch(
        """
        SELECT what FROM kfm.replay_moves
        WHERE replay = %(replay)s AND what IN ('started', 'resumed', 'batch-asked', 'batch-fruitless')
        ORDER BY id DESC LIMIT %(number)s
        """,
        {"replay": replay, "number": 2 * most},
    )
    return [row["what"] for row in rows] == ["batch-fruitless", "batch-asked"] * most


def tried_keys(database: Database, replay: str) -> list[KeyState]:
    """Those that were in a batch that is over, in the order of the plan."""
    return [one for one in keys_of(database, replay, states=("done", "waiting")) if one.batch is not None]


def failures_of(database: Database, replay: str) -> dict[str, str]:
    """Why each key that has failed in this replay did so the last time."""
    rows = database.fetch(
        """
        SELECT DISTINCT ON (b.key) b.key, f.detail ->> 'reason' AS reason
        FROM kfm.wal b JOIN kfm.wal f ON f.key = b.key AND f.txn = b.txn AND f.step = 'fail'
        WHERE b.step = 'begin' AND b.detail ? 'replay' AND b.detail ->> 'replay' = %(replay)s
          AND NOT f.detail ? 'spared'
        ORDER BY b.key, f.id DESC
        """,
        {"replay": replay},
    )
    return {row["key"]: row["reason"] for row in rows}


def record_telemetry(database: Database, replay: str, records: Mapping[str, Mapping[str, object]]) -> None:
    database.execute(
        """
        UPDATE kfm.replay_keys r SET telemetry = t.record::jsonb
        FROM unnest(%(keys)s::text[], %(records)s::text[]) AS t (key, record)
        WHERE r.replay = %(replay)s AND r.key = t.key
        """,
        {"replay": replay, "keys": list(records), "records": [json.dumps(one) for one in records.values()]},
    )


def quarantine(database: Database, replay: str, reasons: Mapping[str, str], actor: str) -> None:
    """Ask for these keys no more; the reason is kept with each, and in the log."""
    with database.transaction() as connection:
        moved = connection.execute(
            """
            UPDATE kfm.replay_keys r SET state = 'quarantined', outcome = 'FAILED', changed_at = clock_timestamp(),
                why = q.why
            FROM unnest(%(keys)s::text[], %(why)s::text[]) AS q (key, why)
            WHERE r.replay = %(replay)s AND r.key = q.key AND r.state = 'waiting'
            RETURNING r.key, r.why, r.attempts
            """,
            {"replay": replay, "keys": list(reasons), "why": list(reasons.values())},
        ).fetchall()
        for row in moved:
            detail = {"key": row["key"], "attempts": row["attempts"], "reason": row["why"]}
            note_move(connection, replay, "key-quarantined", actor, detail)


def count_without_data(database: Database, replay: str) -> int:
    """How many keys are done though there is nothing of them: no object counts, and nothing is published."""
    [row] = database.fetch(
        """
        SELECT count(*) AS n FROM kfm.replay_keys r WHERE replay = %(replay)s AND outcome = 'SKIPPED'
          AND NOT EXISTS (SELECT FROM kfm.revisions v WHERE v.key = r.key)
        """,
        {"replay": replay},
    )
    return int(row["n"])


def _batch(row: Mapping[str, Any]) -> ReplayBatch:
    return ReplayBatch(row["replay"], row["batch"], row["backfill"], tuple(row["names"]))
