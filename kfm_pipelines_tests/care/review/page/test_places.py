"""Places on maps are taken from tables: cells with counts, points with class and uncertainty."""

import pyarrow as pa
import shapely

from kfm_pipelines.care.review.page.places import CellCount, original_places, released_places
from kfm_pipelines.declarations import Column, Table
from kfm_pipelines_tests.fixtures.care.review_page import cell_near, heritage, in_cell, register, released

HERE, THERE = cell_near(-98, 38.5), cell_near(-96, 39)


def test_true_places_are_grouped_by_class() -> None:
    places = original_places(register(200), heritage(), "sensitivity")
    assert [points.name for points in places.points] == ["generalised", "restricted", "withheld"]
    assert sum(len(points) for points in places.points) == 200
    assert places.cells == ()


def test_a_missing_place_is_counted_and_not_drawn() -> None:
    table = pa.table({"longitude": [-98.0, float("nan"), None], "latitude": [38.0, 38.0, 38.0]})
    places = original_places(table, heritage())
    assert [len(points) for points in places.points] == [1]
    assert places.without_place == 2


def test_shapes_become_their_centroid() -> None:
    shaped = heritage().model_copy(
        update={
            "table": Table(
                primary_key=["shape"],
                geometry_column="shape",
                columns=[Column(name="shape", type="geometry", nullable=False, description="Where it is")],
            )
        }
    )
    box, line = shapely.box(-99, 38, -97, 39), shapely.LineString([(-96, 38), (-95, 38)])
    [points] = original_places(pa.table({"shape": shapely.to_wkb([box, line, None])}), shaped).points
    assert list(zip(points.longitude, points.latitude, strict=True)) == [(-98.0, 38.5), (-95.5, 38.0)]


def test_cells_have_the_sum_of_their_records() -> None:
    table = released(in_cell(HERE), in_cell(HERE), in_cell(THERE, records=15), {"records": 10})
    places = released_places(table, heritage(), "sensitivity")
    assert set(places.cells) == {CellCount(HERE, 2), CellCount(THERE, 15)}
    assert places.points == ()
    assert places.without_place == 10


def test_points_without_a_cell_have_their_uncertainty() -> None:
    moved = {"longitude": -98.0, "latitude": 38.0, "uncertainty_m": 5000.0}
    left = {"longitude": -97.0, "latitude": 38.0, "uncertainty_m": 0.0, "sensitivity": "open"}
    places = released_places(released(moved, left, in_cell(HERE)), heritage(), "sensitivity")
    assert [(points.name, points.uncertainty_m.tolist()) for points in places.points] == [
        ("generalised", [5000.0]),
        ("open", [0.0]),
    ]


def test_an_open_table_is_all_points() -> None:
    places = released_places(register(20), heritage())
    assert [(points.name, len(points)) for points in places.points] == [("points", 20)]


def test_an_empty_release_has_no_places() -> None:
    assert released_places(released(), heritage(), "sensitivity").is_empty
