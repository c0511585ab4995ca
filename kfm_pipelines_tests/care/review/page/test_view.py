"""The pieces of the page: places, difference, first rows, and rules and measures in plain English."""

import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.review.page.content import CellChange, RuleSentence
from kfm_pipelines.care.review.page.places import CellCount, original_places, released_places
from kfm_pipelines.care.review.page.sentences import measure_rows, rule_sentences  # fmt: skip
from kfm_pipelines.care.review.page.view import compare_releases, sample_rows
from kfm_pipelines.care.rules import ClassRules
from kfm_pipelines.declarations import Column, Table
from kfm_pipelines_tests.fixtures.care.review_page import (
    MEASURES,
    RESOURCES,
    cell_near,
    heritage,
    in_cell,
    policy,
    register,
    release,
    released,
)

HERE, THERE = cell_near(-98, 38.5), cell_near(-96, 39)


def test_true_places_are_told_apart_by_class() -> None:
    places = original_places(register(200), heritage(), "sensitivity")
    assert [points.name for points in places.points] == ["generalised", "restricted", "withheld"]
    assert sum(len(points) for points in places.points) == 200
    assert places.cells == ()


def test_a_true_place_that_is_none_is_counted_and_not_drawn() -> None:
    table = pa.table({"longitude": [-98.0, float("nan"), None], "latitude": [38.0, 38.0, 38.0]})
    places = original_places(table, heritage())
    assert [len(points) for points in places.points] == [1]
    assert places.without_place == 2


def test_shapes_are_shown_by_their_middle() -> None:
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


def test_cells_are_shown_with_all_their_records() -> None:
    table = released(in_cell(HERE), in_cell(HERE), in_cell(THERE, records=15), {"records": 10})
    places = released_places(table, heritage(), "sensitivity")
    assert set(places.cells) == {CellCount(HERE, 2), CellCount(THERE, 15)}
    assert places.points == ()
    assert places.without_place == 10


def test_points_without_a_cell_are_shown_with_their_uncertainty() -> None:
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


def test_an_empty_release_shows_nothing() -> None:
    assert released_places(released(), heritage(), "sensitivity").is_empty


def test_the_first_release_differs_from_nothing() -> None:
    assert compare_releases(None, release()) is None


def test_the_same_rows_in_another_order_do_not_differ() -> None:
    table = release()
    shuffled = table.take(list(reversed(range(table.num_rows))))
    found = compare_releases(shuffled, table)
    assert found is not None
    assert found.is_none


def test_rows_are_compared_cell_by_cell_and_not_by_their_number() -> None:
    previous = released(in_cell(HERE, period="Archaic"), in_cell(THERE, records=10), in_cell(THERE, records=10))
    current = released({}, in_cell(HERE, period="Archaic"), in_cell(HERE), in_cell(THERE, records=15))
    found = compare_releases(previous, current)
    assert found is not None
    assert (found.rows_before, found.rows_after) == (3, 4)
    assert (found.records_before, found.records_after) == (21, 18)
    assert found.cells == (
        CellChange(THERE, added=0, removed=1, changed=1, records_before=20, records_after=15),
        CellChange(HERE, added=1, removed=0, changed=0, records_before=1, records_after=2),
        CellChange(None, added=1, removed=0, changed=0, records_before=0, records_after=1),
    )


def test_a_row_that_is_there_twice_now_was_added_once() -> None:
    found = compare_releases(released(in_cell(HERE)), released(in_cell(HERE), in_cell(HERE)))
    assert found is not None
    assert [(cell.added, cell.removed, cell.changed) for cell in found.cells] == [(1, 0, 0)]


def test_columns_that_came_or_went_are_named_and_the_others_compared() -> None:
    current = released(in_cell(HERE))
    previous = current.drop_columns(["period"]).append_column("elevation", pa.array([1.0]))
    found = compare_releases(previous, current)
    assert found is not None
    assert (found.columns_added, found.columns_removed, found.cells) == (("period",), ("elevation",), ())


def test_a_column_of_another_type_is_another_column() -> None:
    current = released(in_cell(HERE))
    number = current.schema.get_field_index("period")
    found = compare_releases(current.set_column(number, "period", pa.array([7])), current)
    assert found is not None
    assert (found.columns_added, found.columns_removed) == (("period",), ("period",))


def test_tables_that_say_other_things_about_nulls_can_be_compared() -> None:
    table = released(in_cell(HERE))
    strict = table.cast(pa.schema([table.schema.field(0).with_nullable(nullable=False), *list(table.schema)[1:]]))
    found = compare_releases(strict, table.replace_schema_metadata({"made": "later"}))
    assert found is not None
    assert found.is_none


def test_columns_that_only_repeat_the_wording_are_named_instead() -> None:
    shown = sample_rows(release(), wording=policy().wording, rows=3)
    assert shown.only_wording == ("site_id", "site_name", "site_type", "land_owner", "surveyed_on")
    assert [column.name for column in shown.columns][-2:] == ["period", "condition"]
    assert (len(shown.rows), shown.rows_in_all) == (3, release().num_rows)


def test_a_withheld_column_that_says_anything_else_is_shown() -> None:
    shown = sample_rows(released({}, {"land_owner": "somebody"}), wording=policy().wording)
    assert "land_owner" not in shown.only_wording
    assert "somebody" in shown.rows[1]


def test_values_are_shown_as_people_read_them() -> None:
    table = pa.table(
        {"shape": [shapely.to_wkb(shapely.Point(1, 2)), b"broken"], "share": [-98.0, 0.123456], "word": [None, "a"]}
    )
    assert sample_rows(table, wording=None).rows == (("Point", "-98", "–"), ("not a geometry", "0.12346", "a"))


def test_rules_are_plain_sentences() -> None:
    said = rule_sentences(policy())
    assert [(rule.sensitivity, rule.kind) for rule in said] == [
        ("generalised", "point"),
        ("restricted", "point"),
        ("withheld", "point"),
    ]
    assert said[0].sentence.startswith("The place becomes a hexagon of about 250 km² (H3 resolution 5).")
    assert "hexagons of about 12,000 km² (H3 resolution 3) and 1,800 km² (H3 resolution 4)" in said[1].sentence
    assert "rounded down to a multiple of 5" in said[1].sentence


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"point": {"method": "none"}}, "The place is published as it is."),
        ({"point": {"method": "omit"}}, "The record is neither published nor counted."),
        (
            {"point": {"method": "displace", "min_m": 500.0, "max_m": 2500.0, "reason": "wells"}},
            "The point is moved by 500 m to 2.5 km, in a direction and by a distance that only the secret key tells. "
            "Reason: wells",
        ),
        (
            {"raster": {"method": "nodata", "resolution": 7}},
            "Cells under a footprint, widened to a hexagon of about 5 km², are left empty.",
        ),
    ],
)
def test_every_method_has_its_sentence(rule: dict[str, object], sentence: str) -> None:
    changed = policy().model_copy(update={"classes": {"generalised": ClassRules.model_validate(rule)}})
    assert [said.sentence for said in rule_sentences(changed)] == [sentence]


def test_an_open_policy_is_one_sentence() -> None:
    assert rule_sentences(load_policy(RESOURCES, "not-sensitive")) == [
        RuleSentence("open", "any", "Published as it is.")
    ]


def test_measures_are_explained_and_have_units() -> None:
    rows = {row.name: row for row in measure_rows(MEASURES)}
    assert rows["Still in the same region"].value == "93%"
    assert rows["Largest uncertainty"].value == "78 km"
    assert rows["Distance points were moved"].value == "3.12 km"
    assert "between 1.51 km and 4.87 km" in rows["Distance points were moved"].explanation
    assert all(row.explanation for row in rows.values())


def test_a_measure_that_may_not_be_told_says_why() -> None:
    [row] = measure_rows({"rows_in": None})
    assert row.value == "not told"
    assert "too few records" in row.explanation


def test_a_measure_nobody_explained_is_shown_all_the_same() -> None:
    assert [(row.name, row.value) for row in measure_rows({"new_one": 1234, "rows_out": 1})] == [
        ("Rows published", "1"),
        ("new_one", "1,234"),
    ]
