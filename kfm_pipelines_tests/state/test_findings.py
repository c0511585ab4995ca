"""Findings are kept as they were given, newest first, and can be asked for by what they are about."""

from dataclasses import asdict

import pytest

from kfm_pipelines.errors import Terminal
from kfm_pipelines.gates.verdict import Finding, Severity, error
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.findings import latest_findings, record

WARNING = Finding("row-count", Severity.WARN, "row count", "10", "4", "site_no=1")
ERROR = error("primary-key", "site_no", "one row", "two")


@pytest.fixture
def recorded(database: Database) -> Database:
    with database.transaction() as connection:
        record(connection, "run-1", "usgs/streamflow", "a:b:c:d:e", 3, "quality", [asdict(WARNING), asdict(ERROR)])
        record(connection, "run-2", "heritage/sites", None, None, "deep", [asdict(ERROR)])
        record(connection, "run-3", "heritage/sites", None, None, "deep", [])
    return database


def test_they_come_back_newest_first(recorded: Database) -> None:
    assert [(one.run_id, one.rule, one.severity) for one in latest_findings(recorded)] == [
        ("run-2", "primary-key", "error"),
        ("run-1", "primary-key", "error"),
        ("run-1", "row-count", "warn"),
    ]
    [newest] = latest_findings(recorded, limit=1)
    assert (newest.dataset, newest.key, newest.txn, newest.gate) == ("heritage/sites", None, None, "deep")


def test_they_are_kept_whole(recorded: Database) -> None:
    [one] = latest_findings(recorded, severity="warn")
    assert (one.subject, one.expected, one.measured, one.sample) == ("row count", "10", "4", "site_no=1")
    assert (one.key, one.txn) == ("a:b:c:d:e", 3)


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"dataset": "usgs/streamflow"}, 2),
        ({"key": "a:b:c:d:e"}, 2),
        ({"run_id": "run-2"}, 1),
        ({"severity": "error"}, 2),
        ({"dataset": "heritage/sites", "severity": "warn"}, 0),
    ],
)
def test_one_can_ask_for_some(recorded: Database, asked: dict[str, str], count: int) -> None:
    assert len(latest_findings(recorded, **asked)) == count  # type: ignore[arg-type]


def test_nobody_changes_them(recorded: Database) -> None:
    for statement in ("UPDATE kfm.qa_findings SET severity = 'info'", "DELETE FROM kfm.qa_findings"):
        with pytest.raises(Terminal):
            recorded.execute(statement)
