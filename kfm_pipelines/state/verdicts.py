"""Gate verdicts and findings per key, transaction and content, and the quarantined files of refused keys."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import GateRefused
from kfm_pipelines.state.database import Connection, Database, insert_rows
from kfm_pipelines.state.keys import Claim


@dataclass(frozen=True, slots=True)
class Inspection:
    key: str
    txn: int
    folder: str
    until: datetime


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """A finding and its origin; `txn` is None when it is about published data."""

    id: int
    at: datetime
    run_id: str
    dataset: str
    key: str | None
    txn: int | None
    gate: str
    rule: str
    severity: str
    subject: str
    expected: str
    measured: str
    sample: str


def record_findings(
    connection: Connection,
    run_id: str,
    dataset: str,
    key: str | None,
    txn: int | None,
    gate: str,
    findings: Sequence[Mapping[str, Any]],
) -> None:
    """Records the findings of one gate, in the caller's transaction."""
    about = {"run_id": run_id, "dataset": dataset, "key": key, "txn": txn, "gate": gate, "sample": ""}
    insert_rows(connection, "qa_findings", [{**about, **finding} for finding in findings])


def latest_findings(
    database: Database,
    *,
    dataset: str | None = None,
    key: str | None = None,
    run_id: str | None = None,
    severity: str | None = None,
    limit: int = 200,
) -> list[RecordedFinding]:
    """Returns matching findings, newest first."""
    query = """
        SELECT id, at, run_id, dataset, key, txn, gate, rule, severity, subject, expected, measured, sample
        FROM kfm.qa_findings
        WHERE (%(dataset)s::text IS NULL OR dataset = %(dataset)s) AND (%(key)s::text IS NULL OR key = %(key)s)
          AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s)
          AND (%(severity)s::text IS NULL OR severity = %(severity)s)
        ORDER BY id DESC LIMIT %(limit)s
    """
    parameters = {"dataset": dataset, "key": key, "run_id": run_id, "severity": severity, "limit": limit}
    rows = database.fetch(query, parameters)
    return [RecordedFinding(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """One gate's verdict on the bytes with this digest."""

    gate: str
    digest: str
    passed: bool
    findings: tuple[Mapping[str, Any], ...]
    rules: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None  # full result of the Great Expectations suite


def record_verdicts(connection: Connection, dataset: str, verdicts: Mapping[Claim, Sequence[GateVerdict]]) -> None:
    """Records the verdicts in the order they were given, and each finding as a row of its own."""
    given = [(claim, verdict) for claim, judged in verdicts.items() for verdict in judged]
    rows = [
        {
            "key": claim.key,
            "txn": claim.epoch,
            "gate": one.gate,
            "content_hash": one.digest,
            "passed": one.passed,
            "findings": one.findings,
            "rules": one.rules,
            "report": one.report,
            "run_id": claim.owner,
        }
        for claim, one in given
    ]
    insert_rows(connection, "verdicts", rows)
    for claim, one in given:
        record_findings(connection, claim.owner, dataset, claim.key, claim.epoch, one.gate, one.findings)


def verdicts_of_transactions(connection: Connection, txns: Mapping[str, int]) -> dict[str, list[GateVerdict]]:
    """Returns the verdicts of one transaction of each key, in the order they were given."""
    query = """
        SELECT key, gate, content_hash, passed, findings, rules, report FROM kfm.verdicts
        JOIN unnest(%(keys)s::text[], %(txns)s::bigint[]) AS asked (key, txn) USING (key, txn) ORDER BY at, gate
    """
    rows = connection.execute(query, {"keys": list(txns), "txns": list(txns.values())})
    found: dict[str, list[GateVerdict]] = {key: [] for key in txns}
    for r in rows:
        found[r["key"]].append(
            GateVerdict(r["gate"], r["content_hash"], r["passed"], tuple(r["findings"]), tuple(r["rules"]), r["report"])
        )
    return found


def verdicts_of(database: Database, key: str, txn: int) -> list[GateVerdict]:
    with database.transaction() as connection:
        return verdicts_of_transactions(connection, {key: txn})[key]


def passed_gates(database: Database, txns: Mapping[str, int]) -> dict[str, dict[str, bool]]:
    """Returns, for each key and transaction, whether each gate passed, in the order they ran."""
    query = """
        SELECT key, gate, passed FROM kfm.verdicts
        JOIN unnest(%(keys)s::text[], %(txns)s::bigint[]) AS asked (key, txn) USING (key, txn)
        ORDER BY key, at, gate
    """
    rows = database.fetch(query, {"keys": list(txns), "txns": list(txns.values())})
    found: dict[str, dict[str, bool]] = {key: {} for key in txns}
    for row in rows:
        found[row["key"]][row["gate"]] = row["passed"]
    return found


def require_green(
    key: str,
    verdicts: Iterable[GateVerdict],
    gates: Iterable[str],
    content_hash: str,
    refusal: type[GateRefused] = GateRefused,
) -> None:
    """Refuses unless every gate passed exactly these bytes in the recorded verdicts. A missing one counts as red."""
    by_gate = {judged.gate: judged for judged in verdicts}
    for gate in gates:
        judged = by_gate.get(gate)
        if judged is None:
            raise refusal(f"{key}: the {gate} gate has given no verdict in this transaction")
        if judged.digest != content_hash:
            raise refusal(f"{key}: the {gate} gate judged other bytes than the ones staged")
        if not judged.passed:
            raise refusal(f"{key}: the {gate} gate is red")


def record_kept(database: Database, claim: Claim, folder: str, days: int) -> None:
    """Call before writing the files: what is not recorded is never removed."""
    statement = """
        INSERT INTO kfm.inspections (key, txn, folder, until)
        VALUES (%(key)s, %(txn)s, %(folder)s, clock_timestamp() + make_interval(days => %(days)s))
    """
    database.execute(statement, {"key": claim.key, "txn": claim.epoch, "folder": folder, "days": days})


def record_removed(database: Database, inspection: Inspection) -> None:
    statement = "UPDATE kfm.inspections SET removed_at = clock_timestamp() WHERE key = %(key)s AND txn = %(txn)s"
    database.execute(statement, {"key": inspection.key, "txn": inspection.txn})


def inspections_of(database: Database, keys: Sequence[str]) -> list[Inspection]:
    """Returns what is quarantined of these keys, oldest first."""
    return _fetch_inspections(database, "i.key = ANY(%(keys)s)", keys)


def outdated_inspections(database: Database) -> list[Inspection]:
    """Returns what has expired or was replaced by a later publication of its key."""
    return _fetch_inspections(
        database,
        "i.until < clock_timestamp() OR EXISTS (SELECT FROM kfm.revisions r WHERE r.key = i.key AND r.txn > i.txn)",
    )


def _fetch_inspections(database: Database, condition: str, keys: Sequence[str] = ()) -> list[Inspection]:
    query = f"""
        SELECT i.key, i.txn, i.folder, i.until FROM kfm.inspections i
        WHERE i.removed_at IS NULL AND ({condition}) ORDER BY i.key, i.txn
    """  # noqa: S608 - both conditions are literals in this module
    rows = database.fetch(query, {"keys": list(keys)})
    return [Inspection(**row) for row in rows]
