"""Gate verdicts and findings per key, transaction and content, and the quarantined files of refused keys."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfm_pipelines.errors import GateRefused
from kfm_pipelines.state.database import Connection, Database, jsonb
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
    if not findings:
        return
    about = {"run_id": run_id, "dataset": dataset, "key": key, "txn": txn, "gate": gate}
    with connection.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO kfm.qa_findings
                (run_id, dataset, key, txn, gate, rule, severity, subject, expected, measured, sample)
            VALUES (%(run_id)s, %(dataset)s, %(key)s, %(txn)s, %(gate)s, %(rule)s, %(severity)s, %(subject)s,
                    %(expected)s, %(measured)s, %(sample)s)
            """,
            [{**about, "sample": "", **finding} for finding in findings],
        )


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
    rows = database.fetch(
        """
        SELECT id, at, run_id, dataset, key, txn, gate, rule, severity, subject, expected, measured, sample
        FROM kfm.qa_findings
        WHERE (%(dataset)s::text IS NULL OR dataset = %(dataset)s) AND (%(key)s::text IS NULL OR key = %(key)s)
          AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s)
          AND (%(severity)s::text IS NULL OR severity = %(severity)s)
        ORDER BY id DESC LIMIT %(limit)s
        """,
        {"dataset": dataset, "key": key, "run_id": run_id, "severity": severity, "limit": limit},
    )
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


def record_verdict(database: Database, claim: Claim, dataset: str, verdict: GateVerdict) -> None:
    """Records the verdict, and each finding as a row of its own."""
    with database.transaction() as connection:
        connection.execute(
            """
            INSERT INTO kfm.verdicts (key, txn, gate, content_hash, passed, findings, rules, report, run_id)
            VALUES (%(key)s, %(txn)s, %(gate)s, %(digest)s, %(passed)s, %(findings)s, %(rules)s, %(report)s, %(run_id)s)
            """,
            {
                "key": claim.key,
                "txn": claim.epoch,
                "gate": verdict.gate,
                "digest": verdict.digest,
                "passed": verdict.passed,
                "findings": jsonb([dict(finding) for finding in verdict.findings]),
                "rules": list(verdict.rules),
                "report": None if verdict.report is None else jsonb(dict(verdict.report)),
                "run_id": claim.owner,
            },
        )
        record_findings(connection, claim.owner, dataset, claim.key, claim.epoch, verdict.gate, verdict.findings)


def verdicts_of(database: Database, key: str, txn: int) -> list[GateVerdict]:
    """Returns the verdicts of this transaction in the order they were given."""
    rows = database.fetch(
        """
        SELECT gate, content_hash, passed, findings, rules, report FROM kfm.verdicts
        WHERE key = %(key)s AND txn = %(txn)s ORDER BY at, gate
        """,
        {"key": key, "txn": txn},
    )
    return [
        GateVerdict(r["gate"], r["content_hash"], r["passed"], tuple(r["findings"]), tuple(r["rules"]), r["report"])
        for r in rows
    ]


def passed_gates(database: Database, txns: Mapping[str, int]) -> dict[str, dict[str, bool]]:
    """Returns, for each key and transaction, whether each gate passed, in the order they ran."""
    rows = database.fetch(
        """
        SELECT key, gate, passed FROM kfm.verdicts
        JOIN unnest(%(keys)s::text[], %(txns)s::bigint[]) AS asked (key, txn) USING (key, txn)
        ORDER BY key, at, gate
        """,
        {"keys": list(txns), "txns": list(txns.values())},
    )
    found: dict[str, dict[str, bool]] = {key: {} for key in txns}
    for row in rows:
        found[row["key"]][row["gate"]] = row["passed"]
    return found


def require_green(
    database: Database,
    key: str,
    txn: int,
    gates: Iterable[str],
    content_hash: str,
    refusal: type[GateRefused] = GateRefused,
) -> None:
    """Refuses unless every gate passed exactly these bytes in this transaction. A missing verdict counts as red."""
    by_gate = {judged.gate: judged for judged in verdicts_of(database, key, txn)}
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
    database.execute(
        """
        INSERT INTO kfm.inspections (key, txn, folder, until)
        VALUES (%(key)s, %(txn)s, %(folder)s, clock_timestamp() + make_interval(days => %(days)s))
        """,
        {"key": claim.key, "txn": claim.epoch, "folder": folder, "days": days},
    )


def record_removed(database: Database, inspection: Inspection) -> None:
    database.execute(
        "UPDATE kfm.inspections SET removed_at = clock_timestamp() WHERE key = %(key)s AND txn = %(txn)s",
        {"key": inspection.key, "txn": inspection.txn},
    )


def inspections_of(database: Database, key: str) -> list[Inspection]:
    """Returns what is quarantined of one key, oldest first."""
    return _fetch_inspections(database, "i.key = %(key)s", key)


def outdated_inspections(database: Database) -> list[Inspection]:
    """Returns what has expired or was replaced by a later publication of its key."""
    return _fetch_inspections(
        database,
        "i.until < clock_timestamp() OR EXISTS (SELECT FROM kfm.revisions r WHERE r.key = i.key AND r.txn > i.txn)",
    )


def _fetch_inspections(database: Database, condition: str, key: str = "") -> list[Inspection]:
    rows = database.fetch(
        f"""
        SELECT i.key, i.txn, i.folder, i.until FROM kfm.inspections i
        WHERE i.removed_at IS NULL AND ({condition}) ORDER BY i.key, i.txn
        """,  # noqa: S608 - both conditions are literals in this module
        {"key": key},
    )
    return [Inspection(**row) for row in rows]
