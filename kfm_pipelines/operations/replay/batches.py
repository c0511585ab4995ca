"""The batches of a replay: which keys were asked for together, as which backfill, and when that was over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.operations.replay.eligible import inherit_inputs
from kfm_pipelines.operations.replay.keys import LAST_WAL_ENTRIES
from kfm_pipelines.state.database import Connection, Database
from kfm_pipelines.state.replays import record_move


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    replay: str
    batch: int
    backfill: str
    keys: tuple[str, ...]


def find_open_batch(database: Database, replay: str) -> ReplayBatch | None:
    """The one that was asked for and is not over, with what of it has no outcome yet."""
    rows = database.fetch(
        """
        SELECT b.*, ARRAY(SELECT key FROM kfm.replay_keys k WHERE k.replay = b.replay AND k.batch = b.batch
                          AND k.state = 'asked' ORDER BY place) AS names
        FROM kfm.replay_batches b WHERE replay = %(replay)s AND ended_at IS NULL ORDER BY batch LIMIT 1
        """,
        {"replay": replay},
    )
    return _batch_from_row(rows[0]) if rows else None


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


def create_batch(database: Database, replay: str, limit: int, actor: str) -> ReplayBatch | None:
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
        inherit_inputs(connection, replay, keys)
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
        record_move(connection, replay, "batch-asked", actor, asked)
    return ReplayBatch(replay, row["batch"], row["backfill"], tuple(keys))


def end_batch(database: Database, batch: ReplayBatch, *, ignore_failures: bool = False) -> bool:
    """The batch is over, and what it has not settled waits for another. What it began and did not bring to an end has
    failed in it, unless it was only handed back for another's sake or somebody else holds it, or nothing that happened
    is the keys' fault. False when it was ended before."""
    parameters = {"replay": batch.replay, "batch": batch.batch, "blameless": ignore_failures}
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
            """,  # noqa: S608 - a constant
            parameters,
        ).fetchall()
        if not any(row["failed"] for row in left_over) and not _has_outcomes(connection, batch):
            record_move(connection, batch.replay, "batch-fruitless", "kfm", {"batch": batch.batch})
    return True


def _has_outcomes(connection: Connection, batch: ReplayBatch) -> bool:
    rows = connection.execute(
        """
        SELECT FROM kfm.replay_keys WHERE replay = %(replay)s AND batch = %(batch)s AND state = 'done' LIMIT 1
        """,
        {"replay": batch.replay, "batch": batch.batch},
    ).fetchall()
    return bool(rows)


def made_no_progress(database: Database, replay: str, number: int) -> bool:
    """Whether the last so many batches, since somebody started or resumed it, all came to nothing."""
    rows = database.fetch(
        """
        SELECT what FROM kfm.replay_moves
        WHERE replay = %(replay)s AND what IN ('started', 'resumed', 'batch-asked', 'batch-fruitless')
        ORDER BY id DESC LIMIT %(number)s
        """,
        {"replay": replay, "number": 2 * number},
    )
    return [row["what"] for row in rows] == ["batch-fruitless", "batch-asked"] * number


def _batch_from_row(row: Mapping[str, Any]) -> ReplayBatch:
    return ReplayBatch(row["replay"], row["batch"], row["backfill"], tuple(row["names"]))
