"""Due keys, and the dispatches that bind them to requested runs.

A dispatch is committed before its run is requested. A lost request is repeated under the same run key, which Dagster
accepts only once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.state.database import Database, pairs
from kfm_pipelines.state.keys import LOCK_HELD, LOCK_NAMED, PRIORITIES
from kfm_pipelines.state.liveness import end_open_transactions

LOW, HIGH = min(PRIORITIES.values()), max(PRIORITIES.values())
# Keys that are not urgent go in the order in which they became due; low ones count as due this much later.
LOW_WAITS_SECONDS = 600

RetryDelay = Callable[[int], float]  # attempts so far -> seconds until the next one


@dataclass(frozen=True, slots=True)
class DueKey:
    key: str
    attempts: int
    revision: int
    dispatches: int
    priority: int

    @property
    def run_key(self) -> str:
        """Identifies this one request: Dagster remembers a run key for ever, so none may be reused."""
        return f"{self.key}#{self.revision}#{self.dispatches + 1}"

    @property
    def urgent(self) -> bool:
        return self.priority == HIGH


@dataclass(frozen=True, slots=True)
class Dispatch:
    run_key: str
    dataset: str
    keys: tuple[str, ...]
    age_seconds: float
    process: int | None = None  # of the worker that executes it; None when the daemon is asked to
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class RecentDispatch:
    dataset: str
    urgent: bool


def due_keys(
    database: Database, dataset: str, limit: int, *, prefixes: Sequence[str] = (), taking_over: Sequence[str] = ()
) -> list[DueKey]:
    """Returns due keys that no run holds and no dispatch binds, except those in `taking_over`, in order.

    At most `limit` urgent keys and `limit` others for each prefix, so that a flood of one kind does not hide the rest.
    Due times are rounded to the minute and the oldest window of a minute goes first, because messages arrive in any
    order and adjacent windows share a run.
    """
    rows = database.fetch(
        """
        SELECT key, attempts, dispatches, priority,
               coalesce((SELECT max(revision) FROM kfm.revisions r WHERE r.key = placed.key), 0) AS revision
        FROM (
            SELECT *, row_number() OVER (PARTITION BY urgent, prefix ORDER BY turn, window_start, key) AS place
            FROM (
                SELECT *, priority = %(high)s AS urgent,
                       (SELECT p FROM unnest(%(prefixes)s::text[]) p WHERE starts_with(key, p) LIMIT 1) AS prefix,
                       date_trunc('minute', coalesce(due_at, lease_until) + make_interval(
                           secs => CASE priority WHEN %(low)s THEN %(low_waits)s ELSE 0 END)) AS turn
                FROM kfm.keys
                WHERE dataset = %(dataset)s AND (dispatch IS NULL OR dispatch = ANY(%(taking_over)s))
                  AND key IN (SELECT key FROM kfm.keys WHERE due_at <= clock_timestamp()
                              UNION SELECT key FROM kfm.keys WHERE lease_until < clock_timestamp())
                  AND (owner IS NULL OR lease_until < clock_timestamp())
            ) AS due
        ) AS placed
        WHERE place <= %(limit)s
        ORDER BY urgent DESC, turn, window_start, key
        """,
        {
            "dataset": dataset,
            "limit": limit,
            "prefixes": list(prefixes),
            "taking_over": list(taking_over),
            "high": HIGH,
            "low": LOW,
            "low_waits": LOW_WAITS_SECONDS,
        },
    )
    return [DueKey(r["key"], r["attempts"], r["revision"], r["dispatches"], r["priority"]) for r in rows]


def seconds_until_due(database: Database, datasets: Iterable[str]) -> float | None:
    """Returns how long until the next key of these datasets is due; None when none is waiting or all are killed."""
    rows = database.fetch(
        """
        SELECT extract(epoch FROM min(greatest(coalesce(due_at, lease_until), coalesce(lease_until, due_at)))
                       - clock_timestamp())::float AS seconds
        FROM kfm.keys
        WHERE (due_at IS NOT NULL OR owner IS NOT NULL) AND dataset = ANY(%(datasets)s)
          AND dataset NOT IN (SELECT dataset FROM kfm.killed)
        """,
        {"datasets": list(datasets)},
    )
    seconds = rows[0]["seconds"]
    return None if seconds is None else max(0.0, seconds)


def record_dispatch(
    database: Database,
    run_key: str,
    dataset: str,
    keys: Sequence[str],
    *,
    process: int | None = None,
    taking_over: Sequence[str] = (),
) -> bool:
    """Binds the keys to a run about to be requested, or executed by the worker with this process number; returns False
    when one of them or the run key is already taken. Dagster would silently drop a second request with the same key,
    and its keys would wait for ever."""
    with database.transaction() as connection:
        new = connection.execute(
            """
            INSERT INTO kfm.dispatches (run_key, dataset, keys, priority, process)
            SELECT %(run_key)s, %(dataset)s, %(keys)s, coalesce(max(priority), %(lowest)s), %(process)s
            FROM kfm.keys WHERE key = ANY(%(keys)s)
            ON CONFLICT DO NOTHING
            """,
            {"run_key": run_key, "dataset": dataset, "keys": list(keys), "lowest": LOW, "process": process},
        ).rowcount
        connection.execute(LOCK_NAMED, {"keys": list(keys)})
        bound = connection.execute(
            "UPDATE kfm.keys SET dispatch = %(run_key)s, dispatches = dispatches + 1 "
            "WHERE key = ANY(%(keys)s) AND (dispatch IS NULL OR dispatch = ANY(%(taking_over)s))",
            {"run_key": run_key, "keys": list(keys), "taking_over": list(taking_over)},
        ).rowcount
        won = new == 1 and bound == len(keys)
        if not won:
            connection.rollback()
        return won


def recent_dispatches(database: Database, limit: int) -> list[RecentDispatch]:
    """Returns the latest dispatches, newest first."""
    rows = database.fetch(
        "SELECT dataset, priority FROM kfm.dispatches ORDER BY requested_at DESC LIMIT %(limit)s", {"limit": limit}
    )
    return [RecentDispatch(row["dataset"], row["priority"] == HIGH) for row in rows]


def open_dispatches(database: Database) -> list[Dispatch]:
    rows = database.fetch(
        """
        SELECT run_key, dataset, keys, extract(epoch FROM clock_timestamp() - requested_at)::float AS age, process,
               priority = %(high)s AS urgent
        FROM kfm.dispatches WHERE closed_at IS NULL ORDER BY requested_at
        """,
        {"high": HIGH},
    )
    return [Dispatch(r["run_key"], r["dataset"], tuple(r["keys"]), r["age"], r["process"], r["urgent"]) for r in rows]


def close_dispatch(database: Database, run_key: str) -> None:
    """Closes the dispatch of a finished run; keys it did not settle can be dispatched again."""
    with database.transaction() as connection:
        connection.execute(
            "UPDATE kfm.dispatches SET closed_at = clock_timestamp() WHERE run_key = %(run_key)s", {"run_key": run_key}
        )
        connection.execute(
            "SELECT FROM kfm.keys WHERE dispatch = %(run_key)s ORDER BY key FOR NO KEY UPDATE", {"run_key": run_key}
        )
        connection.execute("UPDATE kfm.keys SET dispatch = NULL WHERE dispatch = %(run_key)s", {"run_key": run_key})


def release_stalled(database: Database, runs: Mapping[str, str], seconds: float) -> int:
    """Releases the keys of dispatches, given with their run ids, whose run began so many seconds ago and holds no live
    lease: its process has stopped without ending. The dispatch itself stays open, like the run."""
    query = """
        SELECT r.run_key, p.process FROM unnest(%(run_keys)s::text[], %(run_ids)s::text[]) AS r (run_key, run_id)
        JOIN kfm.run_processes p USING (run_id)
        WHERE p.begun_at < clock_timestamp() - make_interval(secs => %(seconds)s)
          AND NOT EXISTS (SELECT FROM kfm.keys WHERE owner = r.run_id AND lease_until > clock_timestamp())
    """
    stalled = pairs(database.fetch(query, {"run_keys": list(runs), "run_ids": list(runs.values()), "seconds": seconds}))
    if not stalled:
        return 0
    end_open_transactions(database, stalled.values())
    return database.execute(
        """
        UPDATE kfm.keys SET dispatch = NULL WHERE key IN (
            SELECT key FROM kfm.keys WHERE dispatch = ANY(%(run_keys)s) ORDER BY key FOR NO KEY UPDATE SKIP LOCKED)
        """,
        {"run_keys": list(stalled)},
    )


def void_claims(database: Database, owner: str, retry_delay: RetryDelay) -> int:
    """Releases the keys that a finished run still holds; they are due again after the retry delay."""
    with database.transaction() as connection:
        connection.execute(LOCK_HELD, {"owner": owner})
        held = connection.execute(
            "SELECT key, attempts FROM kfm.keys WHERE owner = %(owner)s", {"owner": owner}
        ).fetchall()
        return connection.execute(
            """
            UPDATE kfm.keys k SET owner = NULL, lease_until = NULL,
                due_at = clock_timestamp() + make_interval(secs => w.seconds)
            FROM unnest(%(keys)s::text[], %(seconds)s::float[]) AS w (key, seconds)
            WHERE k.key = w.key
            """,
            {"keys": [row["key"] for row in held], "seconds": [retry_delay(row["attempts"]) for row in held]},
        ).rowcount


def postpone_untouched(database: Database, run_id: str, keys: Sequence[str], retry_delay: RetryDelay) -> int:
    """Counts a failed run as an attempt of the keys it left untouched, and makes them due after the retry delay."""
    with database.transaction() as connection:
        connection.execute(LOCK_NAMED, {"keys": list(keys)})
        known = connection.execute(
            "SELECT key, attempts FROM kfm.keys WHERE key = ANY(%(keys)s)", {"keys": list(keys)}
        ).fetchall()
        return connection.execute(
            """
            UPDATE kfm.keys k SET attempts = attempts + 1,
                due_at = clock_timestamp() + make_interval(secs => w.seconds)
            FROM unnest(%(keys)s::text[], %(seconds)s::float[]) AS w (key, seconds)
            WHERE k.key = w.key AND owner IS NULL AND due_at <= clock_timestamp()
              AND NOT EXISTS (SELECT FROM kfm.wal l WHERE l.key = k.key AND l.run_id = %(run_id)s)
            """,
            {
                "keys": [row["key"] for row in known],
                "seconds": [retry_delay(row["attempts"] + 1) for row in known],
                "run_id": run_id,
            },
        ).rowcount


@contextmanager
def lock_idle_keys(database: Database, keys: Sequence[str]) -> Iterator[list[str]]:
    """Yields those of the keys that nothing is due, running or requested for, and keeps it so meanwhile."""
    with database.transaction() as connection:
        rows = connection.execute(
            """
            SELECT key FROM kfm.keys WHERE key = ANY(%(keys)s) AND due_at IS NULL AND owner IS NULL AND dispatch IS NULL
            ORDER BY key FOR NO KEY UPDATE SKIP LOCKED
            """,
            {"keys": list(keys)},
        )
        yield [row["key"] for row in rows]


def keys_between(database: Database, dataset: str, start: datetime, end: datetime) -> list[str]:
    """Returns the keys of a dataset whose windows begin in [start, end), in order of time."""
    rows = database.fetch(
        """
        SELECT key FROM kfm.keys WHERE dataset = %(dataset)s AND window_start >= %(start)s AND window_start < %(end)s
        ORDER BY window_start, key
        """,
        {"dataset": dataset, "start": start, "end": end},
    )
    return [row["key"] for row in rows]
