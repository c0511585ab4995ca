"""The schema gate: tables that keep its rules and tables that break one."""

from datetime import timedelta

import pyarrow as pa
import pytest

from kfm_pipelines.gates import Severity, Verdict, judge_schema
from kfm_pipelines_tests.fixtures.gates.subjects import as_computed, subject_of
from kfm_pipelines_tests.fixtures.sites.site import START
from kfm_pipelines_tests.fixtures.tables import WINDOW, minute, rows

NAN, INFINITY = float("nan"), float("inf")
BEFORE, LAST = START - timedelta(microseconds=1), WINDOW[1] - timedelta(microseconds=1)

GREEN = {
    "a good table": rows(),
    "columns in another order": rows().select(list(reversed(rows().column_names))),
    "nulls where they are declared": rows(discharge_cfs=[None] * 3, gage_height_ft=[None, 1.0, None]),
    "the first and the last instant": rows(2, observed_at=[START, LAST]),
    "one site at two times": rows(2, site_no=["a", "a"], observed_at=[minute(0), minute(1)]),
    "two sites at one time": rows(2, site_no=["a", "b"], observed_at=[minute(0)] * 2),
    "the ends of the earth": rows(2, longitude=[-180.0, 180.0], latitude=[-90.0, 90.0]),
}
RED = {
    "no such column": (rows().drop_columns(["qualifier"]), "column-present", "qualifier", "no such column"),
    "another type": (rows(site_no=pa.array([1, 2, 3])), "column-type", "site_no", "int64"),
    "another unit of time": (
        rows(observed_at=pa.array([START] * 3, pa.timestamp("ms", tz="UTC"))),
        "column-type",
        "observed_at",
        "timestamp[ms, tz=UTC]",
    ),
    "no time zone": (
        rows(observed_at=pa.array([START.replace(tzinfo=None)] * 3, pa.timestamp("us"))),
        "column-type",
        "observed_at",
        "timestamp[us]",
    ),
    "a column too many": (rows(owner=["x", "y", "z"]), "column-declared", "owner", "an undeclared column"),
    "a null": (rows(qualifier=["P", None, None]), "no-nulls", "qualifier", "2 of 3 rows"),
    "before the window": (rows(1, observed_at=[BEFORE]), "time-in-window", "observed_at", "1 rows outside"),
    "at the window's end": (rows(1, observed_at=[WINDOW[1]]), "time-in-window", "observed_at", "1 rows outside"),
    "too far east": (rows(1, longitude=[180.1]), "degrees-in-range", "longitude", "1 rows outside"),
    "too far west": (rows(1, longitude=[-180.1]), "degrees-in-range", "longitude", "1 rows outside"),
    "too far north": (rows(1, latitude=[90.1]), "degrees-in-range", "latitude", "1 rows outside"),
    "no number for a place": (rows(1, latitude=[NAN]), "degrees-in-range", "latitude", "1 rows outside"),
    "endlessly far": (rows(1, longitude=[-INFINITY]), "degrees-in-range", "longitude", "1 rows outside"),
}


def judged(table: pa.Table) -> Verdict:
    return judge_schema(subject_of(as_computed(table)))


@pytest.mark.parametrize("table", GREEN.values(), ids=list(GREEN))
def test_a_table_that_keeps_every_rule_is_green_without_findings(table: pa.Table) -> None:
    assert judged(table).findings == ()


@pytest.mark.parametrize(("table", "rule", "subject", "measured"), RED.values(), ids=list(RED))
def test_a_table_that_breaks_a_rule_is_red_and_the_rule_is_named(
    table: pa.Table, rule: str, subject: str, measured: str
) -> None:
    verdict = judged(table)
    assert not verdict.passed
    [finding] = verdict.findings
    assert (finding.rule, finding.severity, finding.subject) == (rule, Severity.ERROR, subject)
    assert finding.measured == measured
    assert verdict.reason == f"{subject}: expected {finding.expected}, found {measured}"


def test_every_broken_rule_is_found_at_once() -> None:
    table = rows(2, qualifier=[None, "P"], latitude=[91.0, 38.0], observed_at=[WINDOW[1], WINDOW[0]])
    assert [finding.rule for finding in judged(table).findings] == ["no-nulls", "time-in-window", "degrees-in-range"]


def test_values_are_judged_only_in_columns_that_are_as_declared() -> None:
    table = rows(site_no=pa.array([1, 2, 3]), qualifier=["P", None, "P"])
    assert [finding.rule for finding in judged(table).findings] == ["column-type"]


def test_a_finding_contains_no_value_of_the_data() -> None:
    table = rows(2, site_no=["secret", "secret"], observed_at=[WINDOW[1]] * 2, latitude=[123.456, 123.456])
    text = " ".join(str(finding) for finding in judged(table).findings)
    assert "secret" not in text
    assert "123" not in text


def test_a_column_name_cannot_flood_the_finding() -> None:
    [finding] = judged(rows().append_column("x" * 5000, pa.array([1, 2, 3]))).findings
    assert len(str(finding)) < 200
