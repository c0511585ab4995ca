"""Rules about places outside the area of the dataset, and about rows that were left out."""

import pytest
import shapely

from kfm_pipelines.gates.quality.places import OUTSIDE_AOI
from kfm_pipelines.gates.quality.table import judge_quality
from kfm_pipelines.gates.verdict import DUPLICATES, OUTSIDE_AREA, Finding, Severity, TableSubject, judge
from kfm_pipelines_tests.fixtures.gates.subjects import KANSAS_AREA, only, outlines, subject
from kfm_pipelines_tests.fixtures.tables import DATASET, rows

MARYLAND = rows(2, site_name=["Potomac River", "Patapsco River"], longitude=[-77.1, -76.7], latitude=[38.9, 39.2])
RESERVATION = shapely.box(-95.8, 39.8, -95.4, 40.2).wkb  # on both sides of the border with Nebraska


def of_maryland(outside_aoi: str | None, *, may_sample: bool = True) -> TableSubject:
    dataset = DATASET.model_copy(update={"outside_aoi": outside_aoi})
    return subject(MARYLAND, dataset=dataset, area=KANSAS_AREA, may_sample=may_sample)


def test_gauges_of_maryland_are_not_published_as_those_of_kansas() -> None:
    assert DATASET.outside_aoi is None
    verdict = judge_quality(of_maryland(None))
    assert not verdict.passed
    assert verdict.reason == "longitude, latitude: expected places in kansas_statewide, found 2 of 2 rows outside"


@pytest.mark.parametrize(
    ("outside_aoi", "severity"),
    [(None, Severity.ERROR), ("refuse", Severity.ERROR), ("clip", Severity.ERROR), ("warn", Severity.WARN)],
)
def test_what_lies_outside_is_an_error_unless_it_is_declared_to_be_warned_of(
    outside_aoi: str | None, severity: Severity
) -> None:
    finding = only(of_maryland(outside_aoi))
    assert (finding.rule, finding.severity) == ("outside-aoi", severity)


def test_a_sample_names_rows_but_no_places() -> None:
    sample = only(of_maryland(None)).sample
    assert "site_no=06866500" in sample
    assert "77" not in sample
    assert only(of_maryland(None, may_sample=False)).sample == ""


def test_a_feature_that_crosses_the_border_is_inside() -> None:
    assert judge_quality(outlines(RESERVATION, area=KANSAS_AREA)).findings == ()
    finding = only(outlines(RESERVATION, shapely.box(-96.5, 41.0, -96.0, 41.5).wkb, area=KANSAS_AREA))
    assert (finding.subject, finding.measured) == ("outline", "1 of 2 rows outside")


@pytest.mark.parametrize(
    ("reason", "rule", "measured"),
    [
        (DUPLICATES, "duplicate-rows", "7 equal to another in all columns, left out"),
        (OUTSIDE_AREA, "outside-aoi", "7 outside, left out"),
        ("without a date", "left-out", "7 left out: without a date"),
    ],
)
def test_rows_that_are_left_out_are_worth_knowing(reason: str, rule: str, measured: str) -> None:
    finding = only(subject(left_out={reason: 7}))
    assert (finding.rule, finding.severity, finding.measured) == (rule, Severity.INFO, measured)


def test_what_was_found_before_masking_stays_known() -> None:
    warned = Finding("outside-aoi", Severity.WARN, "longitude, latitude", "places in here", "1 of 60 rows outside")
    masked = TableSubject(DATASET, DATASET.table, rows(), b"", "", subject().window, found_before_masking=(warned,))
    assert judge("qa", (OUTSIDE_AOI,), masked).findings == (warned,)
