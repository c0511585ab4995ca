"""The QA gate: row counts, unique keys, what findings may contain, and what samples and real files give."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kfm_pipelines.gates.quality.table import judge_quality
from kfm_pipelines.gates.verdict import Severity, TableSubject
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines_tests.fixtures.gates.quality_cases import KANSAS
from kfm_pipelines_tests.fixtures.gates.subjects import found, only, released, subject, with_value
from kfm_pipelines_tests.fixtures.real_files import TRIBAL_AREAS, need_tribal_areas
from kfm_pipelines_tests.fixtures.tables import minute, rows


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


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("month", [1, 6])
def test_every_sample_passes_what_its_dataset_declares(name: str, month: int) -> None:
    judged = released(name, start=datetime(2025, month, 3, tzinfo=UTC))
    assert judged.dataset.quality.ranges
    assert judge_quality(judged).findings == ()


@need_tribal_areas
@pytest.mark.parametrize("path", TRIBAL_AREAS, ids=lambda path: path.stem)
def test_a_real_file_passes_and_a_copy_with_105_percent_does_not(path: Path) -> None:
    judged = released("drought/tribal-areas", path.read_bytes())
    assert judge_quality(judged).findings == ()
    finding = only(replace(judged, table=with_value(judged.table, "class_area_percent", 105.0)))
    assert (finding.rule, finding.severity, finding.subject) == ("range", Severity.ERROR, "class_area_percent")
    assert finding.expected == "0 to 100.01"
