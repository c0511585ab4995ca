"""Read-only queries of `kfm status` and of progress bars."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from kfm_pipelines.state.audit import entries_of_key
from kfm_pipelines.state.database import Database, pairs
from kfm_pipelines.state.kill_switch import find_killed, killed_datasets


def datasets_overview(database: Database) -> dict[str, dict[str, Any]]:
    """`published_until` is the time up to which every known window is published, or there is nothing to publish."""
    query = """
        WITH published AS (SELECT DISTINCT key FROM kfm.revisions),
        open_letters AS (
            SELECT dataset, count(*) AS n FROM kfm.dead_letters WHERE state IN ('open', 'redriving') GROUP BY dataset),
        held AS (SELECT dataset, count(*) AS n FROM kfm.late WHERE state = 'held' GROUP BY dataset)
        SELECT k.dataset,
               count(*) AS keys,
               count(p.key) AS published_keys,
               count(*) FILTER (WHERE k.due_at IS NOT NULL) AS due,
               count(*) FILTER (WHERE k.owner IS NOT NULL) AS in_flight,
               count(*) FILTER (WHERE k.awaiting IS NOT NULL AND k.owner IS NULL) AS awaiting_review,
               max(c.watermark) AS watermark,
               coalesce(min(k.window_start) FILTER (WHERE p.key IS NULL AND NOT EXISTS (
                   SELECT FROM kfm.wal w WHERE w.key = k.key AND w.outcome = 'SKIPPED'
                   AND k.due_at IS NULL AND k.owner IS NULL)), max(k.window_end)) AS published_until,
               coalesce(max(h.n), 0) AS late_held,
               coalesce(max(l.n), 0) AS dlq
        FROM kfm.keys k LEFT JOIN published p ON p.key = k.key LEFT JOIN open_letters l ON l.dataset = k.dataset
        LEFT JOIN held h ON h.dataset = k.dataset
        LEFT JOIN kfm.checkpoints c ON c.dataset = k.dataset AND c.partition = '*'
        GROUP BY k.dataset ORDER BY k.dataset
    """
    rows = database.fetch(query)
    states = database.fetch("SELECT dataset, state, count(*) AS n FROM kfm.inbox GROUP BY dataset, state")
    overview: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row.pop("dataset")
        inbox = empty_overview()["inbox"] | {one["state"]: one["n"] for one in states if one["dataset"] == name}
        overview[name] = {"inbox": inbox, **row, "killed": None}
    for name, one in killed_datasets(database).items():
        overview.setdefault(name, empty_overview())["killed"] = asdict(one)
    return overview


def empty_overview() -> dict[str, Any]:
    inbox = {"received": 0, "started": 0, "succeeded": 0, "failed": 0}
    return {
        "inbox": inbox, "keys": 0, "published_keys": 0, "due": 0, "in_flight": 0, "awaiting_review": 0,
        "watermark": None, "published_until": None, "late_held": 0, "dlq": 0, "killed": None,
    }  # fmt: skip


QUEUE_TOTALS = ("received", "recorded", "duplicates", "refused", "violations")


def queue_totals(database: Database, queue: str) -> dict[str, int]:
    rows = database.fetch("SELECT * FROM kfm.queue_totals WHERE queue = %(queue)s", {"queue": queue})
    return {name: rows[0][name] if rows else 0 for name in QUEUE_TOTALS}


def letters_by_class(database: Database) -> dict[str, int]:
    query = """
        SELECT triage, count(*) AS n FROM kfm.dead_letters WHERE state IN ('open', 'redriving')
        GROUP BY triage ORDER BY triage
    """
    return pairs(database.fetch(query))


def refused_messages(database: Database) -> int:
    rows = database.fetch("SELECT count(*) AS n FROM kfm.dead_letters WHERE closed_at IS NULL AND key IS NULL")
    return int(rows[0]["n"])


def latest_dead_letters(database: Database, limit: int) -> list[dict[str, Any]]:
    query = """
        SELECT id AS letter, changed_at AS at, dataset, key, failure_stage, triage, error, reason
        FROM kfm.dead_letters WHERE state IN ('open', 'redriving') ORDER BY changed_at DESC LIMIT %(limit)s
    """
    return database.fetch(query, {"limit": limit})


def key_history(database: Database, key: str) -> dict[str, Any] | None:
    """Returns everything that happened to one key; None when no event has named it."""
    parameters = {"key": key}
    query = """
        SELECT key, dataset, window_start, window_end, epoch, attempts, owner, lease_until, due_at, awaiting
        FROM kfm.keys WHERE key = %(key)s
    """
    keys = database.fetch(query, parameters)
    if not keys:
        return None
    with database.transaction() as connection:
        stopped = find_killed(connection, keys[0]["dataset"])
    query = "SELECT txn, epoch, step, outcome, run_id, detail, at FROM kfm.wal WHERE key = %(key)s ORDER BY id"
    transitions = database.fetch(query, parameters)
    revisions = """
        SELECT revision, content_hash, item_hash, inputs_hash, rows, bytes, run_id, applied_at
        FROM kfm.revisions WHERE key = %(key)s ORDER BY revision
    """
    events = """
        SELECT i.identity, i.shape, i.change, i.asset_uri, i.etag, i.version_id, i.size, i.event_time,
               coalesce(i.made_at, i.event_time) AS made_at, i.sent_at, i.received_at, i.settled_at, i.state,
               i.trace, l.state AS late
        FROM kfm.inbox i LEFT JOIN kfm.late l ON l.identity = i.identity AND l.is_late
        WHERE i.key = %(key)s ORDER BY i.received_at, i.identity
    """
    verdicts = "SELECT txn, gate, passed, content_hash, findings FROM kfm.verdicts WHERE key = %(key)s ORDER BY at"
    reviews = """
        SELECT at, decision, holder, authority, release_digest, statement ->> 'reason' AS reason
        FROM kfm.review_decisions WHERE key = %(key)s ORDER BY id
    """
    dead_letters = """
        SELECT id AS letter, state, failure_stage, triage, error, reason, attempts, changed_at AS at, closed_at
        FROM kfm.dead_letters WHERE key = %(key)s ORDER BY id
    """
    return {
        **keys[0],
        "killed": asdict(stopped) if stopped else None,
        "transitions": transitions,
        "revisions": database.fetch(revisions, parameters),
        "run_ids": list(dict.fromkeys(transition["run_id"] for transition in transitions)),
        "events": database.fetch(events, parameters),
        "verdicts": database.fetch(verdicts, parameters),
        "reviews": database.fetch(reviews, parameters),
        "audit": entries_of_key(database, key),
        "dead_letters": database.fetch(dead_letters, parameters),
    }


def keys_in_progress(database: Database, keys: list[str]) -> list[str]:
    """Returns those of the keys that are unknown, due, or held by a run."""
    query = "SELECT key FROM kfm.keys WHERE key = ANY(%(keys)s) AND due_at IS NULL AND owner IS NULL"
    rows = database.fetch(query, {"keys": keys})
    done = {row["key"] for row in rows}
    return [key for key in keys if key not in done]


def revisions_of(database: Database, keys: list[str]) -> dict[str, int]:
    query = "SELECT key, max(revision) AS revision FROM kfm.revisions WHERE key = ANY(%(keys)s) GROUP BY key"
    return pairs(database.fetch(query, {"keys": keys}))


# The queries below use an index on time, so that their cost does not grow with the tables. That needs
# `statement_timestamp()`: Postgres uses no index for `clock_timestamp()`.


@dataclass(frozen=True, slots=True)
class SettledCounts:
    """Keys settled in a period and how many failed; events settled and how many were slow."""

    keys: int
    failed: int
    events: int
    slow: int


def count_settled(database: Database, length: timedelta, slow_after_seconds: float) -> SettledCounts:
    """A key that will be retried has not failed yet. Replays have no sending time and do not count as events."""
    query = """
        SELECT (SELECT count(*) FROM kfm.wal WHERE at > statement_timestamp() - %(length)s::interval
                AND (outcome IN ('APPLIED', 'SKIPPED') OR outcome = 'FAILED' AND detail ? 'stage')) AS keys,
               (SELECT count(*) FROM kfm.wal WHERE at > statement_timestamp() - %(length)s::interval
                AND outcome = 'FAILED' AND detail ? 'stage') AS failed,
               count(sent_at) AS events,
               count(*) FILTER (WHERE settled_at - sent_at > make_interval(secs => %(seconds)s)) AS slow
        FROM kfm.inbox WHERE settled_at > statement_timestamp() - %(length)s::interval
    """
    [row] = database.fetch(query, {"length": length, "seconds": slow_after_seconds})
    return SettledCounts(row["keys"], row["failed"], row["events"], row["slow"])


def latency_quantiles(database: Database, length: timedelta, quantiles: Sequence[float]) -> list[float]:
    """Returns quantiles of the seconds from sent to settled; none when nothing was settled."""
    query = """
        SELECT percentile_cont(%(quantiles)s::float[]) WITHIN GROUP (
                   ORDER BY greatest(0, extract(epoch FROM settled_at - sent_at))) AS found
        FROM kfm.inbox WHERE settled_at > statement_timestamp() - %(length)s::interval AND sent_at IS NOT NULL
    """
    [row] = database.fetch(query, {"length": length, "quantiles": list(quantiles)})
    return [float(value) for value in row["found"] or ()]


def double_applies(database: Database, length: timedelta) -> dict[str, int]:
    """Counts revisions with the same inputs as the revision before, by dataset. Any is a broken guarantee."""
    query = """
        WITH doubled AS MATERIALIZED (
            SELECT r.key FROM kfm.revisions r
            JOIN kfm.revisions b ON b.key = r.key AND b.revision = r.revision - 1 AND b.inputs_hash = r.inputs_hash
            WHERE r.applied_at > statement_timestamp() - %(length)s::interval
        )
        SELECT k.dataset, count(*) AS n FROM doubled JOIN kfm.keys k USING (key) GROUP BY k.dataset
    """
    return pairs(database.fetch(query, {"length": length}))


def last_published(database: Database, datasets: Iterable[str]) -> dict[str, datetime]:
    query = """
        SELECT d.dataset, l.at
        FROM unnest(%(datasets)s::text[]) AS d (dataset)
        CROSS JOIN LATERAL (SELECT at FROM kfm.ledger WHERE dataset = d.dataset ORDER BY id DESC LIMIT 1) l
    """
    return pairs(database.fetch(query, {"datasets": list(datasets)}))


def letters_by_queue(database: Database) -> dict[str | None, int]:
    """Counts waiting dead letters by the queue of their message; None for letters of keys."""
    query = "SELECT queue, count(*) AS n FROM kfm.dead_letters WHERE state IN ('open', 'redriving') GROUP BY queue"
    return pairs(database.fetch(query))
