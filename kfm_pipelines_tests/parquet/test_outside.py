"""Which rows of a table lie outside an area."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.parquet import outside as parquet_outside
from kfm_pipelines.parquet.outside import rows_outside
from kfm_pipelines_tests.fixtures.gates.quality_cases import BOW_TIE
from kfm_pipelines_tests.fixtures.gates.subjects import KANSAS_AREA, OUTLINES
from kfm_pipelines_tests.fixtures.tables import DATASET, rows

SQUARE = Area("square", shapely.box(0, 0, 10, 10))
NAN = float("nan")


def outside(table: pa.Table, area: Area = SQUARE, dataset: Any = DATASET) -> list[bool] | None:
    found = rows_outside(table, dataset.table, area)
    return None if found is None else found.tolist()


def points(*places: tuple[float | None, float | None]) -> pa.Table:
    longitudes, latitudes = zip(*places, strict=True)
    return rows(len(places), longitude=list(longitudes), latitude=list(latitudes))


def shapes(*wkb: bytes | None) -> pa.Table:
    return pa.table({"number": range(len(wkb)), "outline": pa.array(wkb, pa.binary())})


def test_a_point_on_the_border_is_inside_and_one_beyond_it_is_not() -> None:
    assert outside(points((5, 5), (10, 3), (0, 0), (10.000001, 3), (-5, 5), (5, 11))) == [False] * 3 + [True] * 3


def test_what_has_no_place_is_not_outside() -> None:
    assert outside(points((None, 5), (5, None), (NAN, 50), (50, 50))) == [False, False, False, True]


@pytest.mark.parametrize("table", [
    rows().drop_columns(["latitude"]),
    rows(longitude=pa.array(["a", "b", "c"])),
    rows().drop_columns(["longitude", "latitude"]),
])  # fmt: skip
def test_places_that_are_not_as_declared_are_for_the_schema_gate(table: pa.Table) -> None:
    assert outside(table) is None


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_a_feature_is_inside_if_any_part_of_it_is(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_outside, "SHAPES_AT_ONCE", at_once)
    inside = [
        shapely.box(1, 1, 2, 2),
        shapely.box(9, 9, 20, 20),  # across the border
        shapely.box(-5, -5, 15, 15),  # all around
        shapely.LineString([(-5, 5), (15, 5)]),
        shapely.MultiPoint([(50, 50), (5, 5)]),
        shapely.box(10 + 1e-12, 2, 12, 3),  # cut at the border
    ]
    beyond = [shapely.box(11, 11, 12, 12), shapely.Point(50, 50), shapely.LineString([(-1, -1), (-1, 20)])]
    faulty = [None, b"nonsense", shapely.Polygon().wkb]
    table = shapes(*(one.wkb for one in inside), *(one.wkb for one in beyond), *faulty)
    assert outside(table, dataset=OUTLINES) == [False] * 6 + [True] * 3 + [False] * 3


def test_points_in_wkb_are_judged_like_coordinates() -> None:
    table = shapes(shapely.Point(5, 5).wkb, None, shapely.Point(50, 5).wkb, shapely.Point().wkb)
    assert outside(table, dataset=OUTLINES) == [False, False, True, False]


def test_an_invalid_geometry_is_judged_without_failing() -> None:
    with np.errstate(invalid="ignore"):
        no_number = shapely.LineString([(0, 0), (NAN, 1)]).wkb
    found = outside(shapes(BOW_TIE, no_number, shapely.box(50, 50, 51, 51).wkb), dataset=OUTLINES)
    assert found is not None
    assert (found[0], found[2]) == (False, True)


def test_a_million_points_take_well_under_a_second() -> None:
    dice = np.random.default_rng(1)
    table = pa.table({"longitude": dice.uniform(-103, -94, 10**6), "latitude": dice.uniform(36, 41, 10**6)})
    begun = time.process_time()
    found = rows_outside(table, DATASET.table, KANSAS_AREA)
    assert time.process_time() - begun < 0.5
    assert found is not None
    assert 0.3 < found.mean() < 0.6
