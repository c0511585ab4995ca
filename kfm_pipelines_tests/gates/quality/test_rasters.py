"""Findings about rasters name the band and what was measured; what is not judged passes."""

from dataclasses import replace

import numpy as np

from kfm_pipelines.gates import judge_quality, judge_schema
from kfm_pipelines.gates.verdict import TableSubject
from kfm_pipelines_tests.fixtures.gates.raster_cases import GRID, HALF, judged
from kfm_pipelines_tests.fixtures.rasters.invented import RAIN, VALUES, WEST, area


def reasons(subject: TableSubject) -> list[str]:
    return [str(finding) for verdict in (judge_schema(subject), judge_quality(subject)) for finding in verdict.findings]


def test_a_finding_names_the_band_and_what_was_measured() -> None:
    wrong = judged(np.where(np.isnan(HALF), np.nan, HALF + 100), bands=[RAIN | {"max": 50}], nodata_share=0.1)
    assert reasons(wrong) == [
        "raster, rain: expected at most 10.0% of the area without a value, found 50.0%",
        "raster, rain: expected at most 50, found 6 of 12 pixels outside",
    ]


def test_pixels_around_the_area_are_not_missing() -> None:
    """A raster has all values there are in a narrow area, however much is around it."""
    values = VALUES.copy()
    values[:, 1:] = np.nan
    assert reasons(replace(judged(values, nodata_share=0.0), area=area(-98, 38, -97.8, 40))) == []


def test_a_grid_that_has_moved_is_named() -> None:
    [reason] = reasons(judged(grid=GRID, made_of={"west": WEST + 0.05}))
    expected = "raster: expected pixels of 0.1 × 0.1 from -98.9, 39, found 0.1 × 0.1 from -97.85, 39"
    assert reason == expected


def test_a_bound_that_is_a_value_of_the_file_is_within() -> None:
    tenth = np.full((3, 4), 0.1, np.float32)
    assert reasons(judged(tenth, bands=[RAIN | {"min": 0.1, "max": 0.1}])) == []


def test_a_table_without_its_files_is_not_judged_by_them() -> None:
    assert reasons(replace(judged(), attachments=None, area=None)) == []
