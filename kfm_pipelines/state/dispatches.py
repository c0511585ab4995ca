"""Dispatches: which keys are due, and which run was asked to take them.

A dispatch is committed before the run is requested. If the request is lost it is made again under the same run key,
which Dagster honours once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kfm_pipelines.state.claims import LOCK_HELD, LOCK_NAMED
from kfm_pipelines.state.database import Database

# Seconds until the next attempt, given how many there were: the one retry policy, which lives beside this layer.
AgainIn = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class DueKey:
    key: str
    attempts: int
    revision: int
    dispatches: int

    @property
    def run_key(self) -> str:
        """Names this very request: Dagster remembers a run key for ever, so it must never come again."""
        return f"{self.key}#{self.revision}#{self.dispatches + 1}"


@dataclass(frozen=True, slots=True)
class Dispatch:
    run_key: str
    dataset: str
    keys: tuple[str, ...]
    age_seconds: float


def due_keys(database: Database, dataset: str, limit: int, *, also_dispatched: bool = False) -> list[DueKey]:
    """Keys with work to do that nobody holds, most urgent first; those a run was asked for only if wanted."""
    rows = database.fetch(
        """
        SELECT key, attempts, dispatches,
               coalesce((SELECT max(revision) FROM kfm.revisions r WHERE r.key = k.key), 0) AS revision
        FROM kfm.keys k
        WHERE dataset = %(dataset)s AND (dispatch IS NULL OR %(also_dispatched)s)
          AND key IN (SELECT key FROM kfm.keys WHERE due_at <= clock_timestamp()
                      UNION SELECT key FROM kfm.keys WHERE lease_until < clock_timestamp())
          AND (owner IS NULL OR lease_until < clock_timestamp())
        ORDER BY priority DESC, window_start, key LIMIT %(limit)s
        """,
        {"dataset": dataset, "limit": limit, "also_dispatched": also_dispatched},
    )
    return [DueKey(row["key"], row["attempts"], row["revision"], row["dispatches"]) for row in rows]


def seconds_until_due(database: Database) -> float | None:
    """How long until the next key can be worked on; None when nothing is waiting."""
    rows = database.fetch(
        """
        SELECT extract(epoch FROM min(greatest(coalesce(due_at, lease_until), coalesce(lease_until, due_at)))
                       - clock_timestamp())::float AS seconds
        FROM kfm.keys WHERE due_at IS NOT NULL OR owner IS NOT NULL
        """
    )
    seconds = rows[0]["seconds"]
    return None if seconds is None else max(0.0, seconds)


def record_dispatch(database: Database, run_key: str, dataset: str, keys: Sequence[str]) -> bool:
    """Bind the keys to a run about to be requested; False when somebody else was quicker with one of them, or with
    this very request: Dagster would drop a second one without a word, and the keys would wait for it for ever."""
    with database.transaction() as connection:
        new = connection.execute(
            "INSERT INTO kfm.dispatches (run_key, dataset, keys) VALUES (%(run_key)s, %(dataset)s, %(keys)s) "
            "ON CONFLICT DO NOTHING",
            {"run_key": run_key, "dataset": dataset, "keys": list(keys)},
        ).rowcount
        connection.execute(LOCK_NAMED, {"keys": list(keys)})
        bound = connection.execute(
            "UPDATE kfm.keys SET dispatch = %(run_key)s, dispatches = dispatches + 1 "
            "WHERE key = ANY(%(keys)s) AND dispatch IS NULL",
            {"run_key": run_key, "keys": list(keys)},
        ).rowcount
        won = new == 1 and bound == len(keys)
        if not won:
            connection.rollback()
        return won


def open_dispatches(database: Database) -> list[Dispatch]:
    rows = database.fetch(
        """
        SELECT run_key, dataset, keys, extract(epoch FROM clock_timestamp() - requested_at)::float AS age
        FROM kfm.dispatches WHERE closed_at IS NULL ORDER BY requested_at
        """
    )
    return [Dispatch(row["run_key"], row["dataset"], tuple(row["keys"]), row["age"]) for row in rows]


def close_dispatch(database: Database, run_key: str) -> None:
    """The run is over: keys it did not settle are free to be dispatched again."""
    with database.transaction() as connection:
        connection.execute(
            "UPDATE kfm.dispatches SET closed_at = clock_timestamp() WHERE run_key = %(run_key)s", {"run_key": run_key}
        )
        connection.execute(
            "SELECT FROM kfm.keys WHERE dispatch = %(run_key)s ORDER BY key FOR NO KEY UPDATE", {"run_key": run_key}
        )
        connection.execute("UPDATE kfm.keys SET dispatch = NULL WHERE dispatch = %(run_key)s", {"run_key": run_key})


def void_claims(database: Database, owner: str, again_in: AgainIn) -> int:
    """A run that is known to have ended holds nothing any more; what it held is due again when the policy says."""
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
            {"keys": [row["key"] for row in held], "seconds": [again_in(row["attempts"]) for row in held]},
        ).rowcount


def put_off_untouched(database: Database, run_id: str, keys: Sequence[str], again_in: AgainIn) -> int:
    """A run that failed without a word on these keys will not do better at once; count it as an attempt of theirs."""
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
                "seconds": [again_in(row["attempts"] + 1) for row in known],
                "run_id": run_id,
            },
        ).rowcount


def is_silent(database: Database, run_id: str, seconds: float) -> bool:
    """Whether a run neither holds a live lease nor wrote to the log in the last so many seconds."""
    rows = database.fetch(
        """
        SELECT 1 WHERE EXISTS (SELECT FROM kfm.keys WHERE owner = %(run_id)s AND lease_until > clock_timestamp())
            OR EXISTS (SELECT FROM kfm.wal WHERE run_id = %(run_id)s
                       AND at > clock_timestamp() - make_interval(secs => %(seconds)s))
        """,
        {"run_id": run_id, "seconds": seconds},
    )
    return not rows
