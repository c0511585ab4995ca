"""Scans of what is published: one at a time of each kind and dataset, what each came to, and what is still to do."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from kfm_pipelines.state.database import Connection, Database, jsonb


class ScanKind(StrEnum):
    NIGHTLY = "nightly"
    DEEP = "deep"
    EXTENTS = "extents"


@dataclass(frozen=True, slots=True)
class Scan:
    """One that ended. `detail` holds counts and names, never values of the data."""

    run_id: str
    kind: ScanKind
    dataset: str
    started_at: datetime
    keys: int
    errors: int
    warnings: int
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DueKeys:
    """Keys to look at now, and how many more should have been."""

    keys: tuple[str, ...]
    left: int


@contextmanager
def scan_lock(database: Database, kind: ScanKind, dataset: str) -> Iterator[datetime | None]:
    """When this scan began; None when another of the kind is under way, which is then left alone.

    The lock is the connection's, not a transaction's: that one would be ended for being idle. It goes with the process.
    """
    parameters = {"lock": f"kfm scan {kind} {dataset}"}
    with database.transaction() as connection:
        [row] = connection.execute(
            "SELECT pg_try_advisory_lock(hashtextextended(%(lock)s, 0)) AS ours, clock_timestamp() AS now", parameters
        ).fetchall()
        connection.commit()
        try:
            yield row["now"] if row["ours"] else None
        finally:
            if row["ours"]:
                connection.execute("SELECT pg_advisory_unlock(hashtextextended(%(lock)s, 0))", parameters)


def select_due_keys(database: Database, dataset: str, *, full: bool, limit: int) -> DueKeys:
    """Published keys that were not looked at since they were published, or were not right then; with `full` all of
    them. If these are fewer than the limit, others as well: bytes change without being published. Those that waited
    longest come first, so that a bounded scan goes on where the last one ended."""
    rows = database.fetch(
        """
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
        """,
        {"dataset": dataset, "full": full, "limit": limit},
    )
    keys = tuple(row["key"] for row in rows)
    return DueKeys(keys, max(rows[0]["due"] - len(keys), 0) if rows else 0)


def record_scanned_key(connection: Connection, key: str, revision: int, errors: int, findings_digest: str) -> bool:
    """Note it together with what was found, of which this is a digest. False when the last look at this revision found
    the same."""
    parameters = {"key": key, "revision": revision, "errors": errors, "found": findings_digest}
    before = connection.execute(
        "SELECT FROM kfm.scanned WHERE key = %(key)s AND revision = %(revision)s AND found = %(found)s", parameters
    ).fetchone()
    connection.execute(
        """
        INSERT INTO kfm.scanned (key, revision, errors, found)
        VALUES (%(key)s, %(revision)s, %(errors)s, %(found)s)
        ON CONFLICT (key) DO UPDATE
        SET revision = excluded.revision, errors = excluded.errors, found = excluded.found, at = excluded.at
        """,
        parameters,
    )
    return before is None


def record_scan(connection: Connection, scan: Scan) -> None:
    connection.execute(
        """
        INSERT INTO kfm.scans (run_id, kind, dataset, started_at, keys, errors, warnings, detail)
        VALUES (%(run_id)s, %(kind)s, %(dataset)s, %(started_at)s, %(keys)s, %(errors)s, %(warnings)s, %(detail)s)
        """,
        {
            "run_id": scan.run_id,
            "kind": scan.kind,
            "dataset": scan.dataset,
            "started_at": scan.started_at,
            "keys": scan.keys,
            "errors": scan.errors,
            "warnings": scan.warnings,
            "detail": jsonb(dict(scan.detail)),
        },
    )


def last_scan(database: Database, kind: ScanKind, dataset: str) -> Scan | None:
    rows = database.fetch(
        """
        SELECT run_id, kind, dataset, started_at, keys, errors, warnings, detail FROM kfm.scans
        WHERE kind = %(kind)s AND dataset = %(dataset)s ORDER BY id DESC LIMIT 1
        """,
        {"kind": kind, "dataset": dataset},
    )
    return Scan(**{**rows[0], "kind": ScanKind(rows[0]["kind"])}) if rows else None
