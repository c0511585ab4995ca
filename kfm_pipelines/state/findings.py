"""Findings of gates and scans: what did not hold, one row for each, in the order it was found. They are added and never
changed; the old ones are forgotten (`retention`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kfm_pipelines.state.database import Database, Row

if TYPE_CHECKING:
    from psycopg import Connection


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """A finding, and where it came from: `txn` is None when it is about what is published already."""

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


def record(
    connection: "Connection[Row]",
    run_id: str,
    dataset: str,
    key: str | None,
    txn: int | None,
    gate: str,
    findings: Sequence[Mapping[str, Any]],
) -> None:
    """Add what one gate found in one table, in the transaction of whatever it decides."""
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
    """The newest first; of everything, or of one dataset, key, run or severity."""
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
