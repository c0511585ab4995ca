"""Findings are kept as they were given, newest first, and can be asked for by what they are about."""

from dataclasses import asdict

import pytest

from kfm_pipelines.errors import Terminal
from kfm_pipelines.gates.verdict import Finding, Severity, error
from kfm_pipelines.operations.retention.tables import delete_old_findings
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.verdicts import latest_findings, record_findings

WARNING = Finding("row-count", Severity.WARN, "row count", "10", "4", "site_no=1")
ERROR = error("primary-key", "site_no", "one row", "two")


@pytest.fixture
def recorded(database: Database) -> Database:
    with database.transaction() as connection:
        record_findings(
            connection, "run-1", "usgs/streamflow", "a:b:c:d:e", 3, "quality", [asdict(WARNING), asdict(ERROR)]
        )
        record_findings(connection, "run-2", "heritage/sites", None, None, "deep", [asdict(ERROR)])
        record_findings(connection, "run-3", "heritage/sites", None, None, "deep", [])
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
    for statement in (
        "UPDATE kfm.qa_findings SET severity = 'info'",
        "DELETE FROM kfm.qa_findings",
        "TRUNCATE kfm.qa_findings",
    ):
        with pytest.raises(Terminal):
            recorded.execute(statement)


def many(database: Database, number: int, days: int) -> None:
    """So many of a run each, found so many days ago."""
    database.execute(
        """
        INSERT INTO kfm.qa_findings (at, run_id, dataset, key, gate, rule, severity, subject, expected, measured)
        SELECT clock_timestamp() - make_interval(days => %(days)s), 'many-' || n, 'a/b',
               'a:b:c:' || n || ':e', 'g', 'r', 'error', 's', 'e', 'm'
        FROM generate_series(1, %(number)s) AS n
        """,
        {"days": days, "number": number},
    )


def test_old_ones_are_forgotten(recorded: Database) -> None:
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


def test_a_key_that_is_still_wrong_keeps_what_was_found(recorded: Database) -> None:
    """It is not written down again while the same is found."""
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


def test_those_of_a_run_are_found_without_reading_all(recorded: Database) -> None:
    many(recorded, 20_000, days=1)
    with recorded.transaction() as connection:
        connection.execute("ANALYZE kfm.qa_findings")
        plan = connection.execute(
            "EXPLAIN SELECT * FROM kfm.qa_findings WHERE run_id = 'many-7' ORDER BY id DESC LIMIT 200"
        ).fetchall()
    assert "qa_findings_of_run" in str(plan)
