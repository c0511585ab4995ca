"""The keys of a replay.

What became of a key is read from the write-ahead log: a transaction says which replay it was begun for, in the same
commit, so nothing has to be kept in step with it. A key with an outcome is never asked for again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfm_pipelines.state.database import Database
from kfm_pipelines.state.replays import record_move

if TYPE_CHECKING:
    pass

# Of every transaction that was begun for a replay, its last entry; the latest transaction of a key first.
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


def keys_of(database: Database, replay: str, *, states: Sequence[str] | None = None) -> list[KeyState]:
    rows = database.fetch(
        """
        SELECT key, source, canary, state, why, batch, attempts, outcome, comparison, telemetry
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


def settle_keys(database: Database, replay: str) -> int:
    """Give every key that was asked for the outcome that the log has for it; how many got one. A release that waits for
    a person has had from the replay what it can give."""
    return database.execute(
        f"""
        WITH last AS ({LAST_WAL_ENTRIES})
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


def attempted_keys(database: Database, replay: str) -> list[KeyState]:
    """Those that were in a batch that is over, in the order of the plan."""
    return [one for one in keys_of(database, replay, states=("done", "waiting")) if one.batch is not None]


def read_failure_reasons(database: Database, replay: str) -> dict[str, str]:
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
            record_move(connection, replay, "key-quarantined", actor, detail)


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
