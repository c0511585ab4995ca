"""The tables of scans: a lock per kind and dataset, scanned keys and their digests, and the outcome of each scan."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from kfm_pipelines.operations.scans.result import ScanKind, ScanResult
from kfm_pipelines.state.database import Connection, Database, jsonb


@contextmanager
def scan_lock(database: Database, kind: ScanKind, dataset: str) -> Iterator[datetime | None]:
    """Yields None when another runs. The lock is the connection's: an idle transaction would be ended."""
    parameters = {"lock": f"kfm scan {kind} {dataset}"}
    with database.transaction() as connection:
        query = "SELECT pg_try_advisory_lock(hashtextextended(%(lock)s, 0)) AS ours, clock_timestamp() AS now"
        [row] = connection.execute(query, parameters).fetchall()
        connection.commit()
        try:
            yield row["now"] if row["ours"] else None
        finally:
            if row["ours"]:
                connection.execute("SELECT pg_advisory_unlock(hashtextextended(%(lock)s, 0))", parameters)


def select_due_keys(database: Database, dataset: str, *, full: bool, limit: int) -> tuple[list[str], int]:
    """Returns due keys, then the longest unscanned, because bytes can change; and how many more are due."""
    query = """
        SELECT key, count(*) FILTER (WHERE due) OVER () AS due
        FROM (
            SELECT k.key, s.at, r.applied_at,
                   %(full)s OR s.key IS NULL OR s.revision <> r.revision OR s.errors > 0 AS due
            FROM kfm.keys k
            JOIN LATERAL (
                SELECT revision, applied_at FROM kfm.revisions WHERE key = k.key ORDER BY revision DESC LIMIT 1
            ) r ON true
            LEFT JOIN kfm.scanned s ON s.key = k.key
            WHERE k.dataset = %(dataset)s
        ) AS published
        ORDER BY published.due DESC, at NULLS FIRST, applied_at, key LIMIT %(limit)s
    """
    rows = database.fetch(query, {"dataset": dataset, "full": full, "limit": limit})
    return [row["key"] for row in rows], max(rows[0]["due"] - len(rows), 0) if rows else 0


def record_scanned_key(connection: Connection, key: str, revision: int, errors: int, findings_digest: str) -> bool:
    """Returns False when the last scan of this revision had the same findings."""
    parameters = {"key": key, "revision": revision, "errors": errors, "found": findings_digest}
    query = "SELECT FROM kfm.scanned WHERE key = %(key)s AND revision = %(revision)s AND found = %(found)s"
    before = connection.execute(query, parameters).fetchone()
    statement = """
        INSERT INTO kfm.scanned (key, revision, errors, found)
        VALUES (%(key)s, %(revision)s, %(errors)s, %(found)s)
        ON CONFLICT (key) DO UPDATE
        SET revision = excluded.revision, errors = excluded.errors, found = excluded.found, at = excluded.at
    """
    connection.execute(statement, parameters)
    return before is None


def record_scan(
    connection: Connection, result: ScanResult, run_id: str, started_at: datetime, detail: Mapping[str, Any]
) -> None:
    """Records that a scan ended. `detail` holds counts and names, never values of the data."""
    left = {"left": result.keys_left, "left_out": result.keys_left_out}
    statement = """
        INSERT INTO kfm.scans (run_id, kind, dataset, started_at, keys, errors, warnings, detail)
        VALUES (%(run_id)s, %(kind)s, %(dataset)s, %(started_at)s, %(keys)s, %(errors)s, %(warnings)s, %(detail)s)
    """
    parameters = {
        **{name: getattr(result, name) for name in ("kind", "dataset", "keys", "errors", "warnings")},
        "run_id": run_id,
        "started_at": started_at,
        "detail": jsonb({**left, **detail}),
    }
    connection.execute(statement, parameters)
