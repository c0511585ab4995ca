"""Great Expectations: every shipped expectation, what results contain, and what they must never contain.

All tests that import GX are in this file, so that one process of the suite pays for it.
"""

import json
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest

from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.gates.expectations import Suite, SuiteResult, judge_suite, load_suite
from kfm_pipelines.gates.verdict import Severity, TableSubject
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.gates.subjects import released, subject, with_value
from kfm_pipelines_tests.fixtures.real_files import TRIBAL_AREAS, need_tribal_areas
from kfm_pipelines_tests.fixtures.tables import DATASET, rows

pytestmark = pytest.mark.slow
Change = Callable[[pa.Table], pa.Table]
DROUGHT, STREAMFLOW = "drought/tribal-areas", "usgs/streamflow"


def setting(column: str, value: object) -> Change:
    return lambda table: with_value(table, column, value)


def all_of(column: str, value: object) -> Change:
    def change(table: pa.Table) -> pa.Table:
        field = table.schema.field(column)
        values = pa.array([value] * table.num_rows, field.type)
        return table.set_column(table.column_names.index(column), field, values)

    return change


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def many_times(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table] * (5000 // table.num_rows + 1))


def of_other_gauges(table: pa.Table) -> pa.Table:
    more = pa.concat_tables([table] * 15)
    numbers = pa.array([f"{number:08d}" for number in range(more.num_rows)])
    return more.set_column(0, more.schema.field("site_no"), numbers)


ERROR, WARN = Severity.ERROR, Severity.WARN
# For every expectation, a change that breaks it.
BROKEN: dict[str, dict[str, tuple[Severity, Change]]] = {
    DROUGHT: {
        "gx:drought-class": (ERROR, setting("usdm_class", "D5")),
        "gx:lsad-code": (ERROR, setting("lsad", "Reservation")),
        "gx:gnis-number": (ERROR, setting("gnis", "4741")),
        "gx:class-percent": (ERROR, setting("class_area_percent", 105.0)),
        "gx:class-within-area": (ERROR, setting("class_area_m2", 1e12)),
        "gx:area-has-size": (ERROR, setting("total_area_m2", 0.0)),
        "gx:area-is-named": (WARN, setting("area_name", "")),
        "gx:one-map": (WARN, many_times),
    },
    STREAMFLOW: {
        "gx:one-reading-each": (ERROR, twice),
        "gx:site-number": (ERROR, setting("site_no", "6866500")),
        "gx:qualifier": (WARN, setting("qualifier", "Z")),
        "gx:discharge": (ERROR, setting("discharge_cfs", -999999.0)),
        "gx:gage-height": (ERROR, setting("gage_height_ft", -999999.0)),
        "gx:discharge-there": (WARN, all_of("discharge_cfs", None)),
        "gx:usual-height": (WARN, all_of("gage_height_ft", 450.0)),
        "gx:kansas-latitude": (WARN, setting("latitude", 41.0)),
        "gx:kansas-longitude": (WARN, setting("longitude", 97.6)),
        "gx:gauges-of-one-state": (WARN, of_other_gauges),
    },
}
EACH = [pytest.param(name, rule, id=rule) for name, rules in BROKEN.items() for rule in rules]
each_expectation = pytest.mark.parametrize(("name", "rule"), EACH)


def suite_of(name: str) -> Suite:
    judged = released(name)
    quality = judged.dataset.quality
    return load_suite(shipped_path("resources"), str(quality.suite or quality.deep_suite), judged.published)


def made(*expectations: dict[str, Any], **meta: Any) -> Suite:
    return Suite.model_validate({"name": "made", "meta": meta, "expectations": list(expectations)})


def values_between(column: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "expect_column_values_to_be_between", "kwargs": {"column": column, **arguments}}


def broken(name: str, rule: str) -> TableSubject:
    good = released(name)
    return replace(good, table=BROKEN[name][rule][1](good.table))


@pytest.mark.parametrize("name", BROKEN)
def test_the_sample_keeps_every_expectation_and_every_expectation_has_a_case(name: str) -> None:
    result = judge_suite(suite_of(name), released(name))
    assert result.findings == ()
    assert set(result.rules) == set(BROKEN[name])
    assert result.report["success"]
    assert all(one["judged"] and one["success"] for one in result.report["expectations"])


@each_expectation
def test_what_breaks_an_expectation_is_found(name: str, rule: str) -> None:
    suite = suite_of(name)
    only = suite.model_copy(update={"expectations": [one for one in suite.expectations if one.rule == rule]})
    found = judge_suite(only, broken(name, rule)).findings
    assert [(one.rule, one.severity) for one in found] == [(rule, BROKEN[name][rule][0])]


@need_tribal_areas
@pytest.mark.parametrize("path", TRIBAL_AREAS[:1], ids=lambda path: path.stem)
def test_a_real_file_passes_and_a_copy_with_105_percent_does_not(path: Path) -> None:
    suite, judged = suite_of(DROUGHT), released(DROUGHT, path.read_bytes())
    assert judge_suite(suite, judged).findings == ()
    wrong = replace(judged, table=with_value(judged.table, "class_area_percent", 105.0))
    [finding] = judge_suite(suite, wrong).findings
    assert (finding.rule, finding.severity, finding.subject) == ("gx:class-percent", ERROR, "class_area_percent")
    assert finding.measured == f"1 of {judged.table.num_rows} rows otherwise"
    assert "class_area_percent=105.0" in finding.sample


SECRET = rows(
    4,
    site_no=["secret-a", "secret-b", "secret-b", "secret-c"],
    discharge_cfs=[1234.5, 1234.5, 9876.5, None],
    latitude=[31.415926] * 4,
    qualifier=["secret"] * 4,
)
ASKED = made(
    values_between("discharge_cfs", max_value=2) | {"meta": {"rule": "low"}},
    values_between("latitude", min_value=50) | {"meta": {"rule": "north"}},
    values_between("qualifier", min_value=0, max_value=1) | {"meta": {"rule": "raises"}, "severity": "info"},
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "site_no"}},
    {"type": "expect_column_max_to_be_between", "kwargs": {"column": "discharge_cfs", "max_value": 2}},
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "latitude", "min_value": 50}},
    {"type": "expect_column_distinct_values_to_be_in_set", "kwargs": {"column": "site_no", "value_set": ["x"]}},
    {"type": "expect_column_most_common_value_to_be_in_set", "kwargs": {"column": "qualifier", "value_set": ["x"]}},
    {
        "type": "expect_column_quantile_values_to_be_between",
        "kwargs": {"column": "discharge_cfs", "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[0, 1]]}},
    },
    {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "site_no", "regex": "^x"}},
    {"type": "expect_column_unique_value_count_to_be_between", "kwargs": {"column": "site_no", "max_value": 2}},
    {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 5}},
)
VALUES = ("secret", "1234", "9876", "31.4")


@pytest.fixture(scope="module")
def hidden() -> SuiteResult:
    return judge_suite(ASKED, subject(SECRET, may_sample=False))


def test_every_broken_expectation_is_found(hidden: SuiteResult) -> None:
    assert [one.rule for one in hidden.findings] == [one.rule for one in ASKED.expectations]
    assert not hidden.report["success"]


def test_results_contain_no_value_where_samples_are_not_allowed(hidden: SuiteResult) -> None:
    text = " ".join(map(str, hidden.findings)) + json.dumps(hidden.report)
    assert not any(value in text for value in VALUES)
    assert {one.sample for one in hidden.findings} == {""}


def test_GX_s_own_result_has_values_only_when_asked(hidden: SuiteResult) -> None:  # noqa: N802 - its name
    text = as_json(hidden.gx)
    assert not any(value in text for value in (*VALUES, "fingerprint"))
    with_values = judge_suite(ASKED, subject(SECRET, may_sample=False), values=True)
    assert "1234" in as_json(with_values.gx)
    assert with_values == hidden


EQUAL = made(
    {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["site_no", "qualifier"]}},
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "site_no", "mostly": 0.5}},
    {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "site_no", "regex": "^a"}},
    {"type": "expect_column_unique_value_count_to_be_between", "kwargs": {"column": "qualifier", "max_value": 2}},
    {
        "type": "expect_column_proportion_of_unique_values_to_be_between",
        "kwargs": {"column": "site_no", "min_value": 0.5},
    },
)


@pytest.mark.parametrize("seed", range(6))
def test_numbers_in_place_of_texts_change_nothing(seed: int) -> None:
    """Texts are numbered unless values are asked for."""
    rng = np.random.default_rng(seed)
    choice = np.array(["a", "b", "ab", "c", None])
    texts = {name: rng.choice(choice, 12).tolist() for name in ("site_no", "qualifier")}
    if seed % 2:
        texts["site_no"] = sorted(text or "" for text in texts["site_no"])
    judged = subject(rows(12, **texts))
    numbered, written = judge_suite(EQUAL, judged), judge_suite(EQUAL, judged, values=True)
    assert numbered == written
    assert "numbered" not in as_json(numbered.gx)


def as_json(result: Any) -> str:
    return json.dumps(result.to_json_dict())


def test_counts_come_back(hidden: SuiteResult) -> None:
    counts = {one["rule"]: one["counts"] for one in hidden.report["expectations"]}
    assert counts["gx:low"] == {"element_count": 4, "missing_count": 1, "unexpected_count": 3}
    assert counts["gx:expect_table_row_count_to_equal"] == {"observed_value": 4}
    measured = {one.rule: one.measured for one in hidden.findings}
    assert measured["gx:low"] == "3 of 4 rows otherwise"
    assert measured["gx:expect_column_unique_value_count_to_be_between"] == "3"
    assert measured["gx:expect_column_max_to_be_between"] == "otherwise"


def test_what_GX_cannot_judge_is_an_error_whatever_was_declared(hidden: SuiteResult) -> None:  # noqa: N802 - its name
    [finding] = [one for one in hidden.findings if one.rule == "gx:raises"]
    assert finding.severity is ERROR
    assert finding.measured == "nothing: Great Expectations could not judge it (TypeError)"
    [reported] = [one for one in hidden.report["expectations"] if one["rule"] == "gx:raises"]
    assert (reported["success"], reported["raised"]) == (False, "TypeError")


def test_samples_never_contain_places() -> None:
    samples = {one.rule: one.sample for one in judge_suite(ASKED, subject(SECRET, may_sample=True)).findings}
    assert samples["gx:low"].startswith("site_no=secret-a, observed_at=")
    assert "discharge_cfs=1234.5" in samples["gx:low"]
    assert "site_no=secret-a" in samples["gx:north"]
    assert not any("31.4" in sample or "latitude" in sample for sample in samples.values())


def test_the_report_is_the_same_every_time(hidden: SuiteResult) -> None:
    again = judge_suite(ASKED, subject(SECRET, may_sample=False))
    assert json.dumps(again.report) == json.dumps(hidden.report)


def test_nothing_is_printed_logged_or_sent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with caplog.at_level(logging.DEBUG):
        judge_suite(ASKED, subject(SECRET))
    assert capfd.readouterr() == ("", "")
    assert [record.name for record in caplog.records if record.name.startswith("great_expectations")] == []


def test_a_column_that_is_not_published_is_reported_and_not_judged() -> None:
    published = DATASET.table.model_copy(
        update={"columns": [one for one in DATASET.table.columns if one.name != "discharge_cfs"]}
    )
    suite = made(
        values_between("discharge_cfs", max_value=0) | {"meta": {"rule": "flow"}},
        values_between("ratio", max_value=0) | {"meta": {"rule": "ratio"}},
        values_between("gage_height_ft", max_value=0) | {"meta": {"rule": "height"}},
        ratios={"ratio": ["gage_height_ft", "discharge_cfs"]},
    )
    result = judge_suite(suite, subject(rows().drop_columns(["discharge_cfs"]), published=published))
    assert [(one.rule, one.severity) for one in result.findings] == [
        ("gx:flow", Severity.INFO),
        ("gx:ratio", Severity.INFO),
        ("gx:height", ERROR),
    ]
    assert result.findings[0].measured == "not published, so not judged"
    assert [one["judged"] for one in result.report["expectations"]] == [False, False, True]


def test_on_a_table_without_rows_only_expectations_about_the_table_are_judged() -> None:
    suite = made(
        {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "discharge_cfs", "min_value": 0}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}, "severity": "warning"},
    )
    result = judge_suite(suite, subject(rows(0)))
    assert [(one.rule, one.severity) for one in result.findings] == [("gx:expect_table_row_count_to_be_between", WARN)]
    assert [one["judged"] for one in result.report["expectations"]] == [False, True]


def test_a_ratio_by_zero_exceeds_every_bound() -> None:
    suite = made(values_between("ratio", max_value=1e9), ratios={"ratio": ["discharge_cfs", "gage_height_ft"]})
    result = judge_suite(suite, subject(rows(3, gage_height_ft=[0.0, 1.0, None])))
    [finding] = result.findings
    assert finding.measured == "1 of 3 rows otherwise"
    assert "discharge_cfs=310.0, gage_height_ft=0.0" in finding.sample


def test_a_suite_that_GX_refuses_is_invalid() -> None:  # noqa: N802 - that is how it is spelt
    suite = made({"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "qualifier", "value_set": 5}})
    with pytest.raises(DeclarationInvalid, match=r"^made\.json: GX refuses it: "):
        judge_suite(suite, subject())
