"""Verdicts: `publish` requires them and fails closed (G2). Findings: append-only, listed newest first."""

from dataclasses import asdict

import pytest

from kfm_pipelines.errors import GateRefused, Terminal
from kfm_pipelines.gates.verdict import Finding, Severity, error
from kfm_pipelines.operations.retention.tables import delete_old_findings
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.verdicts import GateVerdict, latest_findings, record_findings, require_green, verdicts_of
from kfm_pipelines_tests.fixtures.runs.keys import (
    claimed,
    known_key,
    record_verdict,
)

GATES = ("schema", "care")
BYTES = "a" * 64
WARNING = Finding("row-count", Severity.WARN, "row count", "10", "4", "site_no=1")
ERROR = error("primary-key", "site_no", "one row", "two")


@pytest.fixture
def claim(database: Database) -> Claim:
    return claimed(database, known_key(database))


def judge(database: Database, claim: Claim, gate: str, *, content_hash: str = BYTES, passed: bool = True) -> None:
    record_verdict(database, claim, GateVerdict(gate, content_hash, passed, ()))


def test_green_verdicts_of_all_gates_are_enough(database: Database, claim: Claim) -> None:
    for gate in GATES:
        judge(database, claim, gate)
    require_green(claim.key, verdicts_of(database, claim.key, claim.epoch), GATES, BYTES)


@pytest.mark.parametrize("missing", GATES)
def test_a_missing_verdict_counts_as_red(database: Database, claim: Claim, missing: str) -> None:
    for gate in set(GATES) - {missing}:
        judge(database, claim, gate)
    with pytest.raises(GateRefused, match=f"the {missing} gate has given no verdict"):
        require_green(claim.key, verdicts_of(database, claim.key, claim.epoch), GATES, BYTES)


def test_a_verdict_on_other_bytes_counts_as_red(database: Database, claim: Claim) -> None:
    judge(database, claim, "schema")
    judge(database, claim, "care", content_hash="b" * 64)
    with pytest.raises(GateRefused, match="the care gate judged other bytes"):
        require_green(claim.key, verdicts_of(database, claim.key, claim.epoch), GATES, BYTES)


def test_one_red_verdict_is_enough_to_refuse(database: Database, claim: Claim) -> None:
    judge(database, claim, "schema")
    judge(database, claim, "care", passed=False)
    with pytest.raises(GateRefused, match="the care gate is red"):
        require_green(claim.key, verdicts_of(database, claim.key, claim.epoch), GATES, BYTES)


def test_a_verdict_of_an_earlier_transaction_does_not_count(database: Database, claim: Claim) -> None:
    for gate in GATES:
        judge(database, claim, gate)
    epoch = claimed(database, claim.key).epoch
    with pytest.raises(GateRefused, match="no verdict in this transaction"):
        require_green(claim.key, verdicts_of(database, claim.key, epoch), GATES, BYTES)


def test_a_verdict_of_another_key_does_not_count(database: Database, claim: Claim) -> None:
    other = claimed(database, known_key(database, 7))
    assert other.epoch == claim.epoch
    for gate in GATES:
        judge(database, other, gate)
    with pytest.raises(GateRefused, match="no verdict"):
        require_green(claim.key, verdicts_of(database, claim.key, claim.epoch), GATES, BYTES)


@pytest.mark.parametrize("statement", ["UPDATE kfm.verdicts SET passed = true", "DELETE FROM kfm.verdicts"])
def test_a_verdict_cannot_be_changed(database: Database, claim: Claim, statement: str) -> None:
    judge(database, claim, "schema", passed=False)
    with pytest.raises(TransitionIllegal, match="append-only"):
        database.execute(statement)


def test_a_gate_judges_a_transaction_once(database: Database, claim: Claim) -> None:
    judge(database, claim, "schema", passed=False)
    with pytest.raises(Exception, match="verdicts_pkey"):
        judge(database, claim, "schema")


@pytest.fixture
def recorded(database: Database) -> Database:
    with database.transaction() as connection:
        record_findings(
            connection, "run-1", "usgs/streamflow", "a:b:c:d:e", 3, "quality", [asdict(WARNING), asdict(ERROR)]
        )
        record_findings(connection, "run-2", "heritage/sites", None, None, "deep", [asdict(ERROR)])
        record_findings(connection, "run-3", "heritage/sites", None, None, "deep", [])
    return database


def test_findings_are_listed_newest_first(recorded: Database) -> None:
    assert [(one.run_id, one.rule, one.severity) for one in latest_findings(recorded)] == [
        ("run-2", "primary-key", "error"),
        ("run-1", "primary-key", "error"),
        ("run-1", "row-count", "warn"),
    ]
    [newest] = latest_findings(recorded, limit=1)
    assert (newest.dataset, newest.key, newest.txn, newest.gate) == ("heritage/sites", None, None, "deep")


def test_findings_are_stored_completely(recorded: Database) -> None:
    [one] = latest_findings(recorded, severity="warn")
    assert (one.subject, one.expected, one.measured, one.sample) == ("row count", "10", "4", "site_no=1")
    assert (one.key, one.txn) == ("a:b:c:d:e", 3)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"dataset": "usgs/streamflow"}, 2),
        ({"key": "a:b:c:d:e"}, 2),
        ({"run_id": "run-2"}, 1),
        ({"severity": "error"}, 2),
        ({"dataset": "heritage/sites", "severity": "warn"}, 0),
    ],
)
def test_findings_can_be_filtered(recorded: Database, filters: dict[str, str], count: int) -> None:
    assert len(latest_findings(recorded, **filters)) == count  # type: ignore[arg-type]


def test_findings_cannot_be_changed(recorded: Database) -> None:
    for statement in (
        "UPDATE kfm.qa_findings SET severity = 'info'",
        "DELETE FROM kfm.qa_findings",
        "TRUNCATE kfm.qa_findings",
    ):
        with pytest.raises(Terminal):
            recorded.execute(statement)


def many(database: Database, number: int, days: int) -> None:
    """Inserts findings of `number` runs, made `days` days ago."""
    database.execute(
        """
        INSERT INTO kfm.qa_findings (at, run_id, dataset, key, gate, rule, severity, subject, expected, measured)
        SELECT clock_timestamp() - make_interval(days => %(days)s), 'many-' || n, 'a/b',
               'a:b:c:' || n || ':e', 'g', 'r', 'error', 's', 'e', 'm'
        FROM generate_series(1, %(number)s) AS n
        """,
        {"days": days, "number": number},
    )


def test_old_findings_are_deleted(recorded: Database) -> None:
    many(recorded, 3, days=401)
    many(recorded, 2, days=31)
    assert delete_old_findings(recorded, days=400, limit=2) == 2
    assert delete_old_findings(recorded, days=400, limit=2) == 1
    assert delete_old_findings(recorded, days=400, limit=2) == 0
    assert delete_old_findings(recorded, days=30, limit=10) == 2
    many(recorded, 1, days=29)
    with pytest.raises(Terminal):
        delete_old_findings(recorded, days=28, limit=10)
    assert len(latest_findings(recorded, dataset="heritage/sites")) == 1


def test_findings_of_a_key_with_errors_are_kept(recorded: Database) -> None:
    """They are not recorded again while a scan finds the same."""
    many(recorded, 2, days=401)
    recorded.execute(
        "INSERT INTO kfm.keys (key, dataset, window_start, window_end) SELECT k, 'a/b', now(), now() + interval '1 h'"
        " FROM unnest(array['a:b:c:1:e', 'a:b:c:2:e']) AS k"
    )
    recorded.execute(
        "INSERT INTO kfm.scanned (key, revision, errors, found) VALUES ('a:b:c:1:e', 1, 1, ''), ('a:b:c:2:e', 1, 0, '')"
    )
    assert delete_old_findings(recorded, days=400, limit=10) == 1
    assert [one.key for one in latest_findings(recorded, dataset="a/b")] == ["a:b:c:1:e"]


def test_findings_of_a_run_are_found_by_an_index(recorded: Database) -> None:
    many(recorded, 20_000, days=1)
    with recorded.transaction() as connection:
        connection.execute("ANALYZE kfm.qa_findings")
        plan = connection.execute(
            "EXPLAIN SELECT * FROM kfm.qa_findings WHERE run_id = 'many-7' ORDER BY id DESC LIMIT 200"
        ).fetchall()
    assert "qa_findings_of_run" in str(plan)
