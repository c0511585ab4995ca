"""The write-ahead log: append-only steps of one transaction over one key, in an order that `guard_wal` enforces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from kfm_pipelines.state.database import Connection, Database, insert_rows
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


@dataclass(frozen=True, slots=True)
class Transition:
    """A step to write; `txn` is set when a claim ends a predecessor's transaction."""

    claim: Claim
    step: Step
    detail: Mapping[str, object] = field(default_factory=dict)
    txn: int | None = None


def append(connection: Connection, transitions: Sequence[Transition]) -> None:
    """Writes transitions of different keys. The database refuses all of them when a newer claim on one of the keys
    exists or one transition is illegal."""
    ordered = sorted(transitions, key=lambda one: one.claim.key)  # the order in which everybody locks keys
    rows = [
        {
            "key": one.claim.key,
            "txn": one.claim.epoch if one.txn is None else one.txn,
            "epoch": one.claim.epoch,
            "step": one.step,
            "run_id": one.claim.owner,
            "detail": one.detail,
        }
        for one in ordered
    ]
    insert_rows(connection, "wal", rows)


def last_entries(connection: Connection, keys: Sequence[str]) -> dict[str, Entry]:
    """Returns the last entry of each key that has one."""
    query = """
        SELECT w.* FROM unnest(%(keys)s::text[]) AS asked (key)
        JOIN LATERAL (SELECT * FROM kfm.wal WHERE key = asked.key ORDER BY id DESC LIMIT 1) w ON true
    """
    rows = connection.execute(query, {"keys": list(keys)})
    return {row["key"]: _entry(row) for row in rows}


def last_entry(connection: Connection, key: str) -> Entry | None:
    return last_entries(connection, [key]).get(key)


def entries_of_transactions(connection: Connection, txns: Mapping[str, int]) -> list[Entry]:
    """Returns the entries of one transaction of each key, in order."""
    query = """
        SELECT w.* FROM unnest(%(keys)s::text[], %(txns)s::bigint[]) AS asked (key, txn)
        JOIN kfm.wal w USING (key, txn) ORDER BY w.id
    """
    rows = connection.execute(query, {"keys": list(txns), "txns": list(txns.values())})
    return [_entry(row) for row in rows]


def entry_of(connection: Connection, key: str, txn: int, step: Step) -> Entry | None:
    query = "SELECT * FROM kfm.wal WHERE key = %(key)s AND txn = %(txn)s AND step = %(step)s"
    row = connection.execute(query, {"key": key, "txn": txn, "step": step}).fetchone()
    return _entry(row) if row else None


def skipped_fingerprints(connection: Connection, key: str, revision: int) -> set[str]:
    """Returns the fingerprints of inputs that were found to say the same as this revision of the key."""
    query = """
        SELECT DISTINCT detail->>'fingerprint' AS fingerprint FROM kfm.wal
        WHERE key = %(key)s AND step = 'skip' AND detail ? 'fingerprint' AND detail->'revision' = to_jsonb(%(revision)s)
    """
    rows = connection.execute(query, {"key": key, "revision": revision})
    return {row["fingerprint"] for row in rows}


def last_entries_of_run(database: Database, run_id: str, keys: Sequence[str]) -> dict[str, Entry]:
    """Returns the last entry this run wrote for each of the keys that it has one for."""
    query = """
        SELECT DISTINCT ON (key) * FROM kfm.wal
        WHERE key = ANY(%(keys)s) AND run_id = %(run_id)s ORDER BY key, id DESC
    """
    rows = database.fetch(query, {"keys": list(keys), "run_id": run_id})
    return {row["key"]: _entry(row) for row in rows}


def entries_of_run(database: Database, run_id: str) -> list[Entry]:
    rows = database.fetch("SELECT * FROM kfm.wal WHERE run_id = %(run_id)s ORDER BY id", {"run_id": run_id})
    return [_entry(row) for row in rows]


def _entry(row: Mapping[str, Any]) -> Entry:
    values = {name: row[name] for name in Entry.__dataclass_fields__}
    outcome = Outcome(row["outcome"]) if row["outcome"] else None
    return Entry(**{**values, "step": Step(row["step"]), "outcome": outcome})


def fetched_inputs(begun: Mapping[str, Any], computed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the announced inputs with each folder replaced by those of its objects that were fetched. Of these the
    events promise nothing."""
    members = computed.get("members", {})
    inputs: list[dict[str, Any]] = []
    for one in begun.get("inputs", []):
        if one["uri"] not in members:
            inputs.append(dict(one))
        unannounced = {"etag": None, "version": None, "size": None, "sequencer": None}
        inputs += [{**one, **unannounced, "uri": uri} for uri in members.get(one["uri"], [])]
    return inputs
