"""Measures describe the masking without revealing anything about single records."""

from dataclasses import asdict
from itertools import pairwise
from typing import Any

import h3
import pytest
import shapely

from kfm_pipelines_tests.fixtures.care.sites_to_mask import (
    LEAVE,
    OMIT,
    SUPPRESS,
    around,
    displace,
    generalise,
    group,
    mask,
    scattered,
    shapes,
    sites,
)

FOUR = [h3.cell_to_latlng(h3.latlng_to_cell(38.0 + step, -98.0, 5))[::-1] for step in (0.0, 0.5, 1.0, 1.5)]


@pytest.mark.parametrize(("rows", "published"), [(4, None), (5, 5), (9, 5), (23, 20)])
def test_the_number_of_input_rows_is_rounded_down(rows: int, published: int | None) -> None:
    assert mask(sites(*scattered(rows), "withheld"), {"withheld": SUPPRESS}).measures.rows_in == published


@pytest.mark.parametrize("omitted", [0, 1, 6])
def test_omitted_records_do_not_count_as_input(omitted: int) -> None:
    table = sites(*scattered(18 + omitted), ["restricted"] * 18 + ["withheld"] * omitted)
    assert mask(table, {"restricted": SUPPRESS, "withheld": OMIT}).measures.rows_in == 15


@pytest.mark.parametrize("few", [1, 4])
def test_a_class_too_small_to_publish_changes_no_measure(few: int) -> None:
    alone = mask(sites(*scattered(13), "withheld"), {"withheld": SUPPRESS}).measures
    table = sites(*scattered(13 + few), ["withheld"] * 13 + ["generalised"] * few)
    assert mask(table, {"withheld": SUPPRESS, "generalised": generalise(5)}).measures == alone


@pytest.mark.parametrize(("cells", "published"), [(2, 0), (4, 0), (5, 5), (9, 5), (10, 10)])
@pytest.mark.parametrize("rule", [generalise(5), group(5)])
def test_the_number_of_suppressed_cells_is_rounded_down(rule: dict[str, Any], cells: int, published: int) -> None:
    lonely = [(-101.0 + 0.5 * number, 38.5) for number in range(cells)]
    table = sites(*around([*lonely, FOUR[3]], [3] * cells + [10]), "restricted")
    measures = mask(table, {"restricted": rule}).measures
    assert (measures.cells_released, measures.cells_suppressed) == (1, published)


def test_generalised_cells_are_counted() -> None:
    measures = mask(sites(*around(FOUR, [3, 4, 6, 9])), {"generalised": generalise(5)}).measures
    assert (measures.cells_released, measures.smallest_cell) == (2, 5)
    assert (measures.rows_out, measures.records_without_place) == (22, 12)


def test_groups_are_counted_as_published() -> None:
    measures = mask(sites(*around(FOUR, [3, 4, 7, 12]), "restricted"), {"restricted": group(5)}).measures
    assert (measures.cells_released, measures.smallest_cell) == (2, 5)
    assert (measures.rows_out, measures.records_without_place) == (3, 5)


def test_nothing_released_has_no_smallest_cell_and_no_uncertainty() -> None:
    measures = mask(sites(*scattered(6), "withheld"), {"withheld": SUPPRESS}).measures
    assert (measures.smallest_cell, measures.uncertainty_m, measures.spatial_fit) == (None, None, None)


@pytest.mark.parametrize("rule", [generalise(5), group(5), SUPPRESS])
def test_features_too_few_to_publish_are_in_no_measure(rule: dict[str, Any]) -> None:
    few = mask(sites(*around(FOUR, [1, 1, 2, 0]), "restricted"), {"restricted": rule}).measures
    none = mask(sites([], [], "restricted"), {"restricted": rule}).measures
    assert few == none


def test_the_largest_published_uncertainty_is_a_measure() -> None:
    masked = mask(sites(*around(FOUR, [5, 5, 5, 5])), {"generalised": generalise(5)})
    assert masked.measures.uncertainty_m == max(masked.table.column("uncertainty_m").to_pylist())


def test_distances_are_published_for_many_features_only_and_to_ten_metres() -> None:
    rules = {"generalised": displace(2000, 5000)}
    assert mask(sites(*scattered(19)), rules).measures.displacement_m is None
    found = mask(sites(*scattered(2000)), rules).measures.displacement_m
    assert found is not None
    assert 2000 <= found["p05"] < found["p50"] < found["p95"] <= 5000
    assert all(one % 10 == 0 for one in found.values())
    assert found["p50"] == pytest.approx(((2000**2 + 5000**2) / 2) ** 0.5, abs=100)


def test_the_fit_is_published_for_many_features_only() -> None:
    rules = {"generalised": displace(2000, 5000)}
    too_few = [f"INVENTED-{number % 99}" for number in range(200)]
    assert mask(sites(*scattered(200), site_id=too_few), rules).measures.spatial_fit is None
    assert mask(sites(*scattered(99)), rules).measures.spatial_fit is None
    assert mask(sites(*scattered(100)), rules).measures.spatial_fit is not None


def test_the_fit_is_the_share_that_stays_in_its_large_cell() -> None:
    table = sites(*scattered(3000))
    assert mask(table, {"generalised": generalise(3)}).measures.spatial_fit == 1.0
    longitudes, latitudes = scattered(3000)
    masked = mask(table, {"generalised": displace(20000, 50000)})
    true = [h3.latlng_to_cell(*one, 3) for one in zip(latitudes, longitudes, strict=True)]
    pairs = masked.crosswalk.join(masked.table, "record").to_pylist()
    same = [true[pair["row"]] == h3.latlng_to_cell(pair["latitude"], pair["longitude"], 3) for pair in pairs]
    assert masked.measures.spatial_fit == round(20 * sum(same) / len(same)) / 20
    assert 0.2 < sum(same) / len(same) < 0.8


def test_the_fit_of_very_many_records_is_sampled() -> None:
    longitudes, latitudes = scattered(60_000)
    found = mask(sites(longitudes, latitudes), {"generalised": generalise(4)}).measures.spatial_fit
    same = [
        h3.latlng_to_cell(*one, 3) == h3.latlng_to_cell(*h3.cell_to_latlng(h3.latlng_to_cell(*one, 4)), 3)
        for one in zip(latitudes, longitudes, strict=True)
    ]
    assert found == pytest.approx(sum(same) / len(same), abs=0.035)


def straddling() -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the centre of a cell across a border of large cells, and a place in it beyond that border."""
    for longitude, latitude in zip(*(degrees.tolist() for degrees in scattered(5000)), strict=True):
        y, x = h3.cell_to_latlng(h3.latlng_to_cell(latitude, longitude, 5))
        if h3.latlng_to_cell(y, x, 3) != h3.latlng_to_cell(latitude, longitude, 3):
            return (x, y), (longitude, latitude)
    raise AssertionError("such places are everywhere")


def fit(here: int, beyond: int, rule: dict[str, Any]) -> float | None:
    """Returns the fit with these numbers of features at the centre of a cell and across the border."""
    return mask(sites(*around(straddling(), [here, beyond]), "restricted"), {"restricted": rule}).measures.spatial_fit


@pytest.mark.parametrize("rule", [generalise(5), group(5), group(4, 5)])
def test_the_fit_does_not_reveal_on_which_side_of_a_border_a_feature_lies(rule: dict[str, Any]) -> None:
    found = [fit(120 - beyond, beyond, rule) for beyond in range(13)]
    assert None not in found
    steps = [abs(after - before) for before, after in pairwise(one or 0.0 for one in found)]
    # Only every fifth feature changes the fit, and by one step.
    assert all(step < 0.051 for step in steps)
    assert sum(step > 0 for step in steps) <= 2
    assert found[:5] == found[:1] * 5
    if rule == group(5):
        assert found == [1.0] * 5 + [0.95] * 5 + [0.9] * 3


def test_a_feature_of_many_records_counts_once_in_the_fit() -> None:
    centre, beyond = straddling()
    ids = [*(f"INVENTED-{number}" for number in range(110)), *["INVENTED-X"] * 40]
    table = sites(*around([centre, beyond], [110, 40]), "restricted", site_id=ids)
    assert mask(table, {"restricted": group(5)}).measures.spatial_fit == 1.0


def test_open_geometries_without_coordinates_have_no_fit() -> None:
    points = [shapely.Point(*one) for one in zip(*scattered(150), strict=True)]
    measures = mask(shapes(points, "open"), {"open": LEAVE}).measures
    assert (measures.rows_out, measures.spatial_fit) == (150, None)


def test_measures_become_a_plain_document() -> None:
    document = asdict(mask(sites(*around(FOUR, [3, 4, 6, 9])), {"generalised": generalise(5)}).measures)
    assert document["cells_released"] == 2
    assert set(document) == {
        "rows_in", "rows_out", "records_without_place", "cells_released", "cells_suppressed", "smallest_cell",
        "displacement_m", "spatial_fit", "uncertainty_m",
    }  # fmt: skip
