"""The late lane: events made after their window had closed, and what becomes of them by the rule of their dataset.

Belongs here: judging what is late, again when an event is delivered after later ones, and letting go of what is held.
Does not: how far streams have come (`streams`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.datasets import Datasets
from kfm_pipelines.declarations import LateRule
from kfm_pipelines.state.claims import LOCK_FREE
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.due import make_keys_due
from kfm_pipelines.state.streams import hold_streams

if TYPE_CHECKING:
    from psycopg import Connection

KEYS_AT_ONCE = 1000
# Each round judges as many keys as it could lock; with that many, a stream in which events keep changing places is left
# to the next tick.
ROUNDS_AT_ONCE = 20

# Events for which the record of lateness is not what the steps say; by the watermark, which is null for one in time.
_MISJUDGED = """
    SELECT i.identity, i.key, i.dataset, l.watermark AS was, s.watermark
    FROM kfm.inbox i
    JOIN kfm.keys k ON k.key = i.key
    LEFT JOIN kfm.late l ON l.identity = i.identity
    LEFT JOIN LATERAL (
        SELECT w.watermark FROM kfm.watermark_steps w
        WHERE w.dataset = i.dataset AND w.at < coalesce(i.made_at, i.event_time) ORDER BY w.at DESC LIMIT 1
    ) AS s ON s.watermark >= k.window_end
    WHERE {which} AND l.watermark IS DISTINCT FROM s.watermark
"""
_MISJUDGED_NAMED = _MISJUDGED.format(which="i.identity = ANY(%(identities)s)")
_MISJUDGED_SINCE = _MISJUDGED.format(which="i.dataset = %(dataset)s AND coalesce(i.made_at, i.event_time) > %(since)s")


@dataclass(frozen=True, slots=True)
class Judgement:
    """Where the watermark was when the event was made, if that makes it late, and what was thought of that so far."""

    identity: str
    key: str
    dataset: str
    was: datetime | None
    watermark: datetime | None

    @property
    def is_new(self) -> bool:
        """Whether the event is late and was not, or the other way round."""
        return (self.was is None) != (self.watermark is None)


def judge(connection: "Connection[dict[str, Any]]", datasets: Datasets, identities: Sequence[str]) -> list[Judgement]:
    """Record which of these events are late. Their keys and their streams are held by whoever asks."""
    rows = connection.execute(_MISJUDGED_NAMED.encode(), {"identities": list(identities)})
    found = [Judgement(**row) for row in rows]
    _record(connection, datasets, found)
    return found


def review_lateness(database: Database, datasets: Datasets) -> int:
    """Judge again what was made after an event that was delivered late; how many events changed sides. Their keys are
    due: what goes into them, or what is said of it, is not the same any more. A key that somebody has locked is judged
    another time."""
    changed = 0
    for mark in database.fetch("SELECT dataset FROM kfm.late_again ORDER BY dataset"):
        if mark["dataset"] not in datasets:
            continue
        for _ in range(ROUNDS_AT_ONCE):
            review = _review(database, datasets, mark["dataset"])
            changed += review.changed
            if review.done or not review.judged:
                break
    return changed


@dataclass(frozen=True, slots=True)
class _Review:
    judged: int
    changed: int
    done: bool


def _review(database: Database, datasets: Datasets, dataset: str) -> _Review:
    with database.transaction() as connection:
        mark = connection.execute(
            "SELECT since FROM kfm.late_again WHERE dataset = %(dataset)s", {"dataset": dataset}
        ).fetchone()
        if mark is None:
            return _Review(0, 0, done=True)
        parameters = {"dataset": dataset, **mark}
        seen = connection.execute(_MISJUDGED_SINCE.encode(), parameters).fetchall()
        some = sorted({row["key"] for row in seen})[:KEYS_AT_ONCE]
        keys = {row["key"] for row in connection.execute(LOCK_FREE, {"keys": some})}
        hold_streams(connection, [dataset])
        # What is seen now stays so until the end of this transaction; what came meanwhile has to wait for the next.
        now = [Judgement(**row) for row in connection.execute(_MISJUDGED_SINCE.encode(), parameters)]
        ours = [one for one in now if one.key in keys]
        _record(connection, datasets, ours)
        changed = [one for one in ours if one.is_new]
        make_keys_due(connection, [one.key for one in changed])
        done = len(ours) == len(now) and _unmark(connection, parameters)
        return _Review(len(ours), len(changed), done)


def _unmark(connection: "Connection[dict[str, Any]]", mark: Mapping[str, object]) -> bool:
    """Unless an earlier mark was left meanwhile."""
    statement = "DELETE FROM kfm.late_again WHERE dataset = %(dataset)s AND since = %(since)s"
    return connection.execute(statement, mark).rowcount == 1


def _record(connection: "Connection[dict[str, Any]]", datasets: Datasets, found: Sequence[Judgement]) -> None:
    if not found:
        return
    late = [one for one in found if one.watermark is not None]
    rules: list[LateRule] = [datasets[one.dataset].late for one in late]
    # What was taken away at its source does not stay published because it was taken away late.
    connection.execute(
        """
        INSERT INTO kfm.late AS l (identity, key, dataset, rule, watermark, state)
        SELECT n.*, CASE WHEN n.rule = 'patch' OR i.change <> 'created' THEN 'applied' ELSE 'held' END
        FROM unnest(%(identities)s::text[], %(keys)s::text[], %(datasets)s::text[], %(rules)s::text[],
                    %(watermarks)s::timestamptz[]) AS n (identity, key, dataset, rule, watermark)
        JOIN kfm.inbox i ON i.identity = n.identity
        ON CONFLICT (identity) DO UPDATE SET watermark = excluded.watermark
        """,
        {
            "identities": [one.identity for one in late],
            "keys": [one.key for one in late],
            "datasets": [one.dataset for one in late],
            "rules": rules,
            "watermarks": [one.watermark for one in late],
        },
    )
    in_time = [one.identity for one in found if one.watermark is None]
    connection.execute("DELETE FROM kfm.late WHERE identity = ANY(%(identities)s)", {"identities": in_time})
    connection.execute(
        """
        UPDATE kfm.inbox i SET ready_at = CASE WHEN l.state = 'held' THEN 'infinity'::timestamptz END
        FROM kfm.inbox known LEFT JOIN kfm.late l ON l.identity = known.identity
        WHERE i.identity = known.identity AND known.identity = ANY(%(identities)s)
          AND coalesce(l.state = 'held', false) <> coalesce(known.ready_at = 'infinity', false)
        """,
        {"identities": [one.identity for one in found]},
    )
