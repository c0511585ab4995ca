"""The QA gate in detail: what counts as outside, what is not judged, what findings contain, and real files."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations import Extent, Table
from kfm_pipelines.gates.quality.table import judge_quality
from kfm_pipelines.gates.verdict import Finding, Severity, TableSubject
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.gates.quality_cases import BOW_TIE, KANSAS, POINT
from kfm_pipelines_tests.fixtures.gates.subjects import OUTLINES, outlines, released, subject, with_value
from kfm_pipelines_tests.fixtures.real_files import TRIBAL_AREAS, need_tribal_areas
from kfm_pipelines_tests.fixtures.tables import DATASET, minute, rows

NAN, INFINITY = float("nan"), float("inf")


def found(judged: TableSubject) -> list[tuple[str, str, str]]:
    return [(one.rule, one.subject, one.measured) for one in judge_quality(judged).findings]


def only(judged: TableSubject) -> Finding:
    [finding] = judge_quality(judged).findings
    return finding


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


MEASURES = [
    ("mean", 3.0, "mean=3"),
    ("median", 2.0, "median=2"),
    ("stddev", (14 / 3) ** 0.5, "stddev=2.16025"),
    ("sum", 9.0, "sum=9"),
    ("distinct", 3.0, ""),
]


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


with np.errstate(invalid="ignore"):
    NOWHERE = shapely.LineString([(0, 0), (NAN, 1)]).wkb
GEOMETRIES = {
    "not WKB": (b"nonsense", "1 of 2 rows unreadable"),
    "cut short": (POINT[:-3], "1 of 2 rows unreadable"),
    "an empty point": (shapely.Point().wkb, "1 of 2 rows empty"),
    "an empty collection": (shapely.GeometryCollection().wkb, "1 of 2 rows empty"),
    "crosses itself": (BOW_TIE, "1 of 2 rows invalid"),
    "too far east": (shapely.Point(180.1, 0).wkb, "1 of 2 rows beyond"),
    "too far south": (shapely.LineString([(0, 0), (0, -90.1)]).wkb, "1 of 2 rows beyond"),
    "no number": (NOWHERE, "1 of 2 rows beyond"),
    "endless": (shapely.Point(INFINITY, 1).wkb, "1 of 2 rows beyond"),
}


@pytest.mark.parametrize("case", GEOMETRIES)
def test_a_broken_geometry_is_reported_once(case: str) -> None:
    wkb, text = GEOMETRIES[case]
    finding = only(outlines(POINT, wkb))
    assert (finding.rule, finding.severity, finding.subject) == ("geometry-valid", Severity.ERROR, "outline")
    assert (finding.measured, finding.sample) == (text, "number=2")


def test_a_repeated_key_is_found_wherever_its_rows_are() -> None:
    table = rows(4, site_no=["b", "a", "c", "b"], observed_at=[minute(5)] * 4)
    finding = only(subject(table))
    assert (finding.subject, finding.measured) == ("site_no, observed_at", "1 rows too many")
    assert finding.sample.count("site_no=b") == 2
    assert found(subject(table.slice(0, 3))) == []
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3)])
    assert only(subject(chunked)) == finding


def test_keys_of_several_columns_are_compared_column_by_column() -> None:
    table = rows(4, site_no=["a", "a", "b", "b"], observed_at=[minute(3), minute(4), minute(1), minute(2)])
    assert found(subject(table)) == []
    again = rows(4, site_no=["a", "a", "b", "b"], observed_at=[minute(3), minute(4), minute(1), minute(1)])
    zigzag = rows(3, site_no=["b", "a", "b"], observed_at=[minute(1), minute(2), minute(1)])
    for table in (again, zigzag):
        assert found(subject(table)) == [("primary-key-unique", "site_no, observed_at", "1 rows too many")]


def test_row_counts_are_judged_only_against_what_came_before() -> None:
    quality = {"rows": {"previous": {"error_percent": 0.0}, "neighbours": {"error_percent": 0.0}}}
    assert found(subject(rows(3), quality=quality)) == []
    assert found(subject(rows(3), quality=quality, previous_rows=3, neighbour_rows=(3, 3))) == []
    assert [rule for rule, _, _ in found(subject(rows(3), quality=quality, previous_rows=0, neighbour_rows=(0,)))] == [
        "row-count-previous",
        "row-count-neighbours",
    ]
    assert found(subject(rows(3), previous_rows=1000, neighbour_rows=(1000,))) == []


def test_a_change_of_rows_is_reported_in_percent() -> None:
    quality = {"rows": {"previous": {"warn_percent": 10.0}}}
    finding = only(subject(rows(3), quality=quality, previous_rows=4))
    assert str(finding) == "table: expected at most 10 % from the 4 rows published now, found 3 rows, 25.0 % fewer"


def test_drift_names_the_start_of_both_digests() -> None:
    finding = only(subject(quality={"stable": True}, same_inputs_hash="b" * 64))
    assert finding.measured == "aaaaaaaaaaaa instead of bbbbbbbbbbbb"


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


def everything_wrong(**changes: Any) -> TableSubject:
    table = rows(
        4,
        site_no=["secret"] * 4,
        observed_at=[minute(7)] * 4,
        discharge_cfs=[123.456, 123.456, None, None],
        latitude=[31.415926] * 4,
    )
    quality = {
        "ranges": [{"column": "discharge_cfs", "max": 1.0}, {"column": "latitude", "min": 50.0}],
        "statistics": [
            {"column": "discharge_cfs", "measure": "mean", "max": 1.0},
            {"column": "latitude", "measure": "mean", "min": 50.0},
        ],
        "nulls": [{"column": "discharge_cfs", "error_above": 0.0}],
    }
    return subject(table, dataset=KANSAS, quality=quality, **changes)


def test_findings_contain_no_value_where_samples_are_not_allowed() -> None:
    findings = judge_quality(everything_wrong(may_sample=False)).findings
    assert {one.rule for one in findings} == {"primary-key-unique", "range", "statistic", "null-share", "in-extent"}
    assert {one.sample for one in findings} == {""}
    text = " ".join(map(str, findings))
    assert not any(value in text for value in ("secret", "123", "31.4"))


def test_samples_never_contain_places() -> None:
    findings = judge_quality(everything_wrong()).findings
    samples = [one.sample for one in findings]
    assert any("123.456" in sample for sample in samples)
    assert not any("31.4" in sample or "latitude" in sample for sample in samples)


def test_a_masked_place_may_lie_outside_by_its_uncertainty() -> None:
    heritage = declared()["heritage/sites"]
    published = published_table(heritage, load_policy(shipped_path("resources"), heritage.policy))
    judged = released("heritage/sites", may_sample=False)
    centre = with_value(with_value(judged.table, "longitude", -98.0), "latitude", 40.35)  # 33 km north of the extent
    near, far = (with_value(centre, "uncertainty_m", metres) for metres in (35_000.0, 30_000.0))
    dataset = heritage.model_copy(update={"extent": Extent(west=-102.1, south=36.95, east=-94.55, north=40.05)})
    assert found(subject(near, dataset=dataset, published=published)) == []
    assert [rule for rule, _, _ in found(subject(far, dataset=dataset, published=published))] == ["in-extent"]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("month", [1, 6])
def test_every_sample_passes_what_its_dataset_declares(name: str, month: int) -> None:
    judged = released(name, start=datetime(2025, month, 3, tzinfo=UTC))
    assert judged.dataset.quality.ranges
    assert judge_quality(judged).findings == ()


def test_the_usgs_code_for_no_reading_is_refused() -> None:
    judged = released("usgs/streamflow")
    for column in ("discharge_cfs", "gage_height_ft"):
        wrong = replace(judged, table=with_value(judged.table, column, -999999.0))
        verdict = judge_quality(wrong)
        assert not verdict.passed
        assert {(one.rule, one.subject) for one in verdict.findings} == {("range", column)}


@need_tribal_areas
@pytest.mark.parametrize("path", TRIBAL_AREAS, ids=lambda path: path.stem)
def test_a_real_file_passes_and_a_copy_with_105_percent_does_not(path: Path) -> None:
    judged = released("drought/tribal-areas", path.read_bytes())
    assert judge_quality(judged).findings == ()
    finding = only(replace(judged, table=with_value(judged.table, "class_area_percent", 105.0)))
    assert (finding.rule, finding.severity, finding.subject) == ("range", Severity.ERROR, "class_area_percent")
    assert finding.expected == "0 to 100.01"
