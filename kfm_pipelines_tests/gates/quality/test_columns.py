"""Rules about columns: ranges, statistics, shares of nulls."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kfm_pipelines.declarations import Table
from kfm_pipelines.gates.quality.table import judge_quality
from kfm_pipelines.gates.verdict import Severity
from kfm_pipelines_tests.fixtures.gates.quality_cases import POINT
from kfm_pipelines_tests.fixtures.gates.subjects import OUTLINES, found, only, outlines, released, subject, with_value
from kfm_pipelines_tests.fixtures.tables import DATASET, rows

NAN, INFINITY = float("nan"), float("inf")
MEASURES = [
    ("mean", 3.0, "mean=3"),
    ("median", 2.0, "median=2"),
    ("stddev", (14 / 3) ** 0.5, "stddev=2.16025"),
    ("sum", 9.0, "sum=9"),
    ("distinct", 3.0, ""),
]


def bounded(**bounds: Any) -> dict[str, Any]:
    return {"ranges": [{"column": "discharge_cfs", **bounds}]}


def measured(measure: str, **bounds: Any) -> dict[str, Any]:
    return {"statistics": [{"column": "discharge_cfs", "measure": measure, **bounds}]}


@pytest.mark.parametrize("bounds", [{"min": 0.0}, {"max": 9.0}], ids=str)
@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY], ids=str)
def test_nan_and_infinity_are_outside_every_range(bounds: dict[str, float], value: float) -> None:
    table = rows(3, discharge_cfs=[value, 1.0, None])
    assert found(subject(table, quality=bounded(**bounds))) == [("range", "discharge_cfs", "1 of 3 rows outside")]


def test_nulls_are_not_outside_a_range() -> None:
    assert found(subject(rows(2, discharge_cfs=[None, 1.0]), quality=bounded(min=0.0, max=2.0))) == []


def test_integers_can_have_bounds() -> None:
    table = outlines(POINT, POINT, POINT).table
    quality = {"ranges": [{"column": "number", "max": 2.0}]}
    assert found(subject(table, dataset=OUTLINES, quality=quality)) == [("range", "number", "1 of 3 rows outside")]


@pytest.mark.parametrize("bounds", [{"min": 0.5}, {"max": 2.0**62 + 0.0}, {"min": -1e300, "max": 1e300}])
def test_the_largest_integers_are_compared_exactly(bounds: dict[str, float]) -> None:
    values = [-(2**63), 1, 2**63 - 1]
    outside = sum(not bounds.get("min", -INFINITY) <= value <= bounds.get("max", INFINITY) for value in values)
    table = pa.table({"number": values, "outline": pa.array([POINT] * 3, pa.binary())})
    findings = found(subject(table, dataset=OUTLINES, quality={"ranges": [{"column": "number", **bounds}]}))
    assert findings == ([("range", "number", f"{outside} of 3 rows outside")] if outside else [])


@pytest.mark.parametrize("measure", ["mean", "median", "stddev", "sum"])
def test_a_statistic_of_nan_is_no_number(measure: str) -> None:
    quality = {"statistics": [{"column": "discharge_cfs", "measure": measure, "min": 0.0}]}
    assert found(subject(rows(discharge_cfs=[NAN] * 3), quality=quality)) == [
        ("statistic", "discharge_cfs", "no number")
    ]


def test_a_finding_states_what_was_expected_and_samples_a_few_rows() -> None:
    finding = only(subject(rows(5, discharge_cfs=[1.0, 5.5, 6.5, 7.5, 8.5]), quality=bounded(min=0.0, max=5.0)))
    assert str(finding) == "discharge_cfs: expected 0 to 5, found 4 of 5 rows outside"
    assert finding.sample.count(";") == 2
    assert finding.sample.startswith("site_no=06866501, observed_at=2025-12-04 00:01:00+00:00, discharge_cfs=5.5; ")


@pytest.mark.parametrize(("measure", "value", "sample"), MEASURES, ids=[case[0] for case in MEASURES])
def test_a_statistic_ignores_nulls(measure: str, value: float, sample: str) -> None:
    table = rows(4, discharge_cfs=[1.0, None, 2.0, 6.0])
    assert found(subject(table, quality=measured(measure, min=value - 1e-6, max=value + 1e-6))) == []
    below = only(subject(table, quality=measured(measure, min=value + 0.01)))
    above = only(subject(table, quality=measured(measure, max=value - 0.01)))
    assert (below.measured, above.measured) == (("3", "3") if measure == "distinct" else ("less", "more"))
    assert below.sample == above.sample == sample


def test_statistics_skip_a_column_of_nulls_but_not_one_of_nan() -> None:
    quality = measured("mean", min=0.0)
    assert found(subject(rows(2, discharge_cfs=[None, None]), quality=quality)) == []
    assert found(subject(rows(0), quality=quality)) == [("not-empty", "table", "none")]
    assert found(subject(rows(1, discharge_cfs=[NAN]), quality=quality)) == [
        ("statistic", "discharge_cfs", "no number")
    ]


def test_the_number_of_distinct_texts_can_have_bounds() -> None:
    quality = {"statistics": [{"column": "qualifier", "measure": "distinct", "max": 1.0}]}
    finding = only(subject(rows(3, qualifier=["A", "P", "P"]), quality=quality))
    assert str(finding) == "qualifier: expected distinct of at most 1, found 2"


def test_a_share_of_nulls_is_reported_with_the_limit_it_exceeds() -> None:
    nulls = {"nulls": [{"column": "gage_height_ft", "warn_above": 0.1, "error_above": 0.5}]}
    warned = only(subject(rows(4, gage_height_ft=[None, 1.0, 1.0, 1.0]), quality=nulls))
    assert str(warned) == "gage_height_ft: expected at most 10.0% missing, found 1 of 4 rows (25.0%)"
    failed = only(subject(rows(4, gage_height_ft=[None, None, None, 1.0]), quality=nulls))
    assert str(failed) == "gage_height_ft: expected at most 50.0% missing, found 3 of 4 rows (75.0%)"


def without(*names: str) -> Table:
    kept = [column for column in DATASET.table.columns if column.name not in names]
    return DATASET.table.model_copy(update={"columns": kept})


def test_a_threshold_on_a_column_that_is_not_published_is_reported_and_not_judged() -> None:
    quality = {
        **bounded(min=0.0, max=1.0),
        **measured("mean", max=1.0),
        "nulls": [{"column": "discharge_cfs", "error_above": 0.0}],
    }
    table = rows(3).drop_columns(["discharge_cfs"])
    verdict = judge_quality(subject(table, quality=quality, published=without("discharge_cfs")))
    assert [(one.rule, one.severity, one.measured) for one in verdict.findings] == [
        (rule, Severity.INFO, "not published, so not judged") for rule in ("range", "statistic", "null-share")
    ]
    assert verdict.passed


def test_a_column_withheld_as_text_is_not_judged_as_numbers() -> None:
    columns = [
        column.model_copy(update={"type": "string"}) if column.name == "discharge_cfs" else column
        for column in DATASET.table.columns
    ]
    table = rows(3).drop_columns(["discharge_cfs"]).append_column("discharge_cfs", pa.array(["Withheld"] * 3))
    judged = subject(table, quality=bounded(max=1.0), published=DATASET.table.model_copy(update={"columns": columns}))
    assert found(judged) == [("range", "discharge_cfs", "not published, so not judged")]


def test_the_usgs_code_for_no_reading_is_refused() -> None:
    judged = released("usgs/streamflow")
    for column in ("discharge_cfs", "gage_height_ft"):
        wrong = replace(judged, table=with_value(judged.table, column, -999999.0))
        verdict = judge_quality(wrong)
        assert not verdict.passed
        assert {(one.rule, one.subject) for one in verdict.findings} == {("range", column)}
