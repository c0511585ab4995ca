"""SQL behind a plan: the known keys of a period and their average cost, and new keys for windows that have none."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.energy.meter import Usage
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.state.database import Connection, Database, columns
from kfm_pipelines.state.revisions import Revision


@dataclass(frozen=True, slots=True)
class KnownKey:
    """`declaration` is the digest of the declaration that produced the current revision."""

    key: str
    window_start: datetime
    window_end: datetime
    revision: int | None
    published_at: datetime | None
    declaration: str | None
    inputs_from: str | None
    failed: bool
    events: int
    late: int
    partitions: tuple[str, ...]

    @property
    def version(self) -> str:
        return CanonicalKey.parse(self.key).transform_version


@dataclass(frozen=True, slots=True)
class NewKey:
    key: str
    window_start: datetime
    window_end: datetime


@dataclass(frozen=True, slots=True)
class AverageUsage:
    """Average cost of the latest published keys of a dataset; None where nothing was measured."""

    keys: int
    usage: Usage
    wall_seconds: float | None
    bytes: float | None


def known_keys(database: Database, dataset: str, start: datetime, end: datetime) -> list[KnownKey]:
    """Returns the keys whose window begins in [start, end), oldest first."""
    query = """
        WITH chosen AS (
            SELECT key, window_start, window_end, inputs_from FROM kfm.keys
            WHERE dataset = %(dataset)s AND window_start >= %(start)s AND window_start < %(end)s
        ), received AS (
            SELECT i.key, count(*) AS events, count(l.identity) AS late, array_agg(DISTINCT i.partition) AS partitions
            FROM kfm.inbox i JOIN chosen c ON c.key = i.key
                 LEFT JOIN kfm.late l ON l.identity = i.identity AND l.is_late
            GROUP BY i.key
        ), failed AS (
            SELECT DISTINCT key FROM kfm.dead_letters
            WHERE dataset = %(dataset)s AND key IS NOT NULL AND state IN ('open', 'redriving')
        ), published AS (
            SELECT DISTINCT ON (r.key) r.key, r.revision, r.txn
            FROM kfm.revisions r JOIN chosen c ON c.key = r.key ORDER BY r.key, r.revision DESC
        )
        SELECT c.*, p.revision, w.at AS published_at, w.detail #>> '{frozen,declaration}' AS declaration,
               f.key IS NOT NULL AS failed,
               coalesce(t.events, 0) AS events, coalesce(t.late, 0) AS late, t.partitions
        FROM chosen c LEFT JOIN published p ON p.key = c.key LEFT JOIN failed f ON f.key = c.key
             LEFT JOIN received t ON t.key = c.key
             LEFT JOIN kfm.wal w ON w.key = p.key AND w.txn = p.txn AND w.step = 'compute'
        ORDER BY c.window_start, c.key
    """
    rows = database.fetch(query, {"dataset": dataset, "start": start, "end": end})
    return [KnownKey(**{**row, "partitions": tuple(row["partitions"] or ())}) for row in rows]


def read_declaration_digest(database: Database, revision: Revision) -> str | None:
    """Returns the digest of the declaration that produced a revision, or None where it was not kept."""
    query = """
        SELECT detail #>> '{frozen,declaration}' AS digest FROM kfm.wal
        WHERE key = %(key)s AND txn = %(txn)s AND step = 'compute'
    """
    rows = database.fetch(query, {"key": revision.key, "txn": revision.txn})
    return rows[0]["digest"] if rows else None


def create_keys(database: Database, dataset: str, new_keys: Sequence[NewKey]) -> int:
    """Creates keys that are not due, skipping those that exist; returns how many are new."""
    ordered = sorted(new_keys, key=lambda one: one.key)
    statement = """
        INSERT INTO kfm.keys (key, dataset, window_start, window_end, priority)
        SELECT key, %(dataset)s, window_start, window_end, 0
        FROM unnest(%(key)b::text[], %(window_start)b::timestamptz[], %(window_end)b::timestamptz[])
             AS n (key, window_start, window_end)
        ON CONFLICT DO NOTHING
    """
    return database.execute(statement, {"dataset": dataset, **columns(ordered, "key", "window_start", "window_end")})


def inherit_inputs(connection: Connection, replay: str, keys: Sequence[str]) -> None:
    """Points unpublished keys at the inputs of their sources. A published key keeps its own."""
    statement = """
        UPDATE kfm.keys k SET inputs_from = coalesce(s.inputs_from, s.key)
        FROM kfm.replay_keys r JOIN kfm.keys s ON s.key = r.source
        WHERE r.replay = %(replay)s AND r.key = ANY(%(keys)s) AND k.key = r.key
          AND k.inputs_from IS DISTINCT FROM coalesce(s.inputs_from, s.key)
          AND NOT EXISTS (SELECT FROM kfm.revisions v WHERE v.key = k.key)
    """
    connection.execute(statement, {"replay": replay, "keys": list(keys)})


def read_average_usage(database: Database, dataset: str) -> AverageUsage:
    query = """
        WITH latest AS (
            SELECT r.key, r.txn, r.bytes FROM kfm.revisions r JOIN kfm.keys k ON k.key = r.key
            WHERE k.dataset = %(dataset)s ORDER BY k.window_start DESC LIMIT 200
        ), used AS (
            SELECT count(DISTINCT key) AS keys, avg(wall) AS held, avg(cpu) AS cpu, avg(memory) AS memory,
                   avg(network)::bigint AS network
            FROM (SELECT e.key, sum(e.wall_seconds) AS wall, sum(e.cpu_seconds) AS cpu,
                         sum(e.gigabyte_seconds) AS memory, sum(e.network_bytes) AS network
                  FROM kfm.energy e JOIN latest l ON l.key = e.key AND l.txn = e.epoch
                  GROUP BY e.key, e.epoch HAVING count(e.cpu_seconds) = count(*)) AS each
        ), runs AS (
            SELECT w.run_id, count(DISTINCT w.key) AS keys, extract(epoch FROM max(w.at) - min(w.at))::float AS seconds
            FROM kfm.wal w JOIN latest l ON l.key = w.key AND l.txn = w.txn GROUP BY w.run_id
        )
        SELECT used.*,
               (SELECT sum(seconds) / nullif(sum(keys), 0) FROM runs) AS wall_seconds,
               (SELECT avg(bytes)::float FROM latest) AS bytes
        FROM used
    """
    [row] = database.fetch(query, {"dataset": dataset})
    usage = Usage(row["held"] or 0.0, row["cpu"], row["memory"], network_bytes=row["network"])
    return AverageUsage(row["keys"], usage, row["wall_seconds"], row["bytes"])
