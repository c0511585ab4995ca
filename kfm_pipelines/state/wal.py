"""The write-ahead log: append-only steps of one transaction over one key, in an order that `guard_wal` enforces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kfm_pipelines.state.database import Connection, Database, jsonb
from kfm_pipelines.state.keys import Claim


class Step(StrEnum):
    BEGIN = "begin"
    COMPUTE = "compute"
    MASK = "mask"
    VALIDATE = "validate"
    STAGE_ATOMIC = "stage_atomic"
    PUBLISH = "publish"
    COMMIT = "commit"
    SKIP = "skip"
    FAIL = "fail"


class Outcome(StrEnum):
    APPLIED = "APPLIED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    txn: int
    epoch: int
    step: Step
    outcome: Outcome | None
    run_id: str
    detail: Mapping[str, Any]
    at: datetime


def append(
    connection: Connection,
    claim: Claim,
    step: Step,
    detail: Mapping[str, object] | None = None,
    *,
    txn: int | None = None,
) -> None:
    """Writes one transition; the database refuses it when a newer claim exists or the transition is illegal."""
    connection.execute(
        """
        INSERT INTO kfm.wal (key, txn, epoch, step, run_id, detail)
        VALUES (%(key)s, %(txn)s, %(epoch)s, %(step)s, %(run_id)s, %(detail)s)
        """,
        {
            "key": claim.key,
            "txn": claim.epoch if txn is None else txn,
            "epoch": claim.epoch,
            "step": step,
            "run_id": claim.owner,
            "detail": jsonb(detail or {}),
        },
    )


def last_entry(connection: Connection, key: str) -> Entry | None:
    row = connection.execute(
        "SELECT * FROM kfm.wal WHERE key = %(key)s ORDER BY id DESC LIMIT 1", {"key": key}
    ).fetchone()
    return _entry(row) if row else None


def entry_of(connection: Connection, key: str, txn: int, step: Step) -> Entry | None:
    row = connection.execute(
        "SELECT * FROM kfm.wal WHERE key = %(key)s AND txn = %(txn)s AND step = %(step)s",
        {"key": key, "txn": txn, "step": step},
    ).fetchone()
    return _entry(row) if row else None


def history(connection: Connection, key: str) -> list[Entry]:
    rows = connection.execute("SELECT * FROM kfm.wal WHERE key = %(key)s ORDER BY id", {"key": key})
    return [_entry(row) for row in rows]


def last_entries_of_run(database: Database, run_id: str, keys: Sequence[str]) -> dict[str, Entry]:
    """Returns the last entry this run wrote for each of the keys that it has one for."""
    rows = database.fetch(
        """
        SELECT DISTINCT ON (key) * FROM kfm.wal
        WHERE key = ANY(%(keys)s) AND run_id = %(run_id)s ORDER BY key, id DESC
        """,
        {"keys": list(keys), "run_id": run_id},
    )
    return {row["key"]: _entry(row) for row in rows}


def entries_of_run(database: Database, run_id: str) -> list[Entry]:
    rows = database.fetch("SELECT * FROM kfm.wal WHERE run_id = %(run_id)s ORDER BY id", {"run_id": run_id})
    return [_entry(row) for row in rows]


def _entry(row: Mapping[str, Any]) -> Entry:
    values = {name: row[name] for name in Entry.__dataclass_fields__}
    outcome = Outcome(row["outcome"]) if row["outcome"] else None
    return Entry(**{**values, "step": Step(row["step"]), "outcome": outcome})
