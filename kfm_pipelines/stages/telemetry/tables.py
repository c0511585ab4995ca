"""Read-only queries for telemetry: the events and trace behind a key, settled events, and earlier row counts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.state.database import Database

MAX_EVENTS_LISTED = 20
MAX_EVENTS_TIMED = 1000  # events of one transaction


@dataclass(frozen=True, slots=True)
class Origin:
    """The newest events and objects of one key."""

    trace: str | None = None
    events: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    made_at: datetime | None = None  # the newest of all


def origins_of(database: Database, keys: Collection[str]) -> dict[str, Origin]:
    """Returns the origin of each of these keys that has an event."""
    query = """
        SELECT key,
               (array_agg(trace ORDER BY place) FILTER (WHERE trace IS NOT NULL))[1] AS trace,
               array_agg(identity ORDER BY place) AS events,
               array_agg(DISTINCT asset_uri) AS objects,
               max(coalesce(made_at, event_time)) AS made_at
        FROM unnest(%(keys)s::text[]) AS asked (key) CROSS JOIN LATERAL (
            SELECT trace, identity, asset_uri, made_at, event_time, row_number() OVER (
                -- Events that a run has taken come first, then waiting ones, then those held in the late lane.
                ORDER BY (state = 'started') DESC, ready_at IS NOT DISTINCT FROM 'infinity', received_at DESC, identity
            ) AS place
            FROM kfm.inbox i WHERE i.key = asked.key ORDER BY place LIMIT %(most)s
        ) newest GROUP BY key
    """
    rows = database.fetch(query, {"keys": list(dict.fromkeys(keys)), "most": MAX_EVENTS_LISTED})
    return {
        row["key"]: Origin(row["trace"], tuple(row["events"]), tuple(row["objects"]), row["made_at"]) for row in rows
    }


@dataclass(frozen=True, slots=True)
class SettledEvents:
    """The number of events that a transaction settled, and for some of them the seconds since they were sent."""

    events: int = 0
    seconds: tuple[float, ...] = ()


def settled_events(database: Database, transactions: Mapping[str, int]) -> dict[str, SettledEvents]:
    """Returns what each transaction settled, by key; call after they have ended."""
    query = """
        SELECT t.key, count(*) AS events,
               (array_agg(greatest(0, extract(epoch FROM i.settled_at - i.sent_at))::float)
                FILTER (WHERE i.sent_at IS NOT NULL))[1:%(most)s] AS seconds
        FROM unnest(%(keys)s::text[], %(txns)s::bigint[]) AS t (key, txn)
        JOIN kfm.wal b ON b.key = t.key AND b.txn = t.txn AND b.step = 'begin'
        JOIN kfm.inbox i ON i.key = t.key AND i.settled_at >= b.at
        GROUP BY t.key
    """
    parameters = {"keys": list(transactions), "txns": list(transactions.values()), "most": MAX_EVENTS_TIMED}
    rows = database.fetch(query, parameters)
    return {row["key"]: SettledEvents(row["events"], tuple(row["seconds"] or ())) for row in rows}


def rows_before(database: Database, revisions: Mapping[str, int]) -> dict[str, int]:
    """Returns the row count of the revision before each; for a first one, that of the previous window of the same tile,
    station or county."""
    query = """
        SELECT asked.key, coalesce(b.rows, before.rows) AS rows
        FROM unnest(%(keys)s::text[], %(revisions)s::integer[]) AS asked (key, revision)
        JOIN kfm.keys mine ON mine.key = asked.key
        LEFT JOIN kfm.revisions b ON b.key = asked.key AND b.revision = asked.revision - 1
        LEFT JOIN LATERAL (
            SELECT r.rows FROM kfm.keys k CROSS JOIN LATERAL (
                SELECT rows FROM kfm.revisions WHERE key = k.key ORDER BY revision DESC LIMIT 1) r
            WHERE asked.revision = 1 AND k.dataset = mine.dataset
              AND split_part(k.key, ':', 5) = split_part(mine.key, ':', 5)
              AND split_part(k.key, ':', 2) = split_part(mine.key, ':', 2) AND k.window_start < mine.window_start
            ORDER BY k.window_start DESC LIMIT 1) before ON true
        WHERE coalesce(b.rows, before.rows) IS NOT NULL
    """
    rows = database.fetch(query, {"keys": list(revisions), "revisions": list(revisions.values())})
    return {row["key"]: int(row["rows"]) for row in rows}
