"""The members of a split are declared, or are the cells that cover the area, and never too many."""

import math
from pathlib import Path
from typing import Any

import h3
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kfm_pipelines.declarations.areas import Area, load_area
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.declarations.splits import SplitBy, cells_of_area, members_of
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.events.notices import declared

KANSAS = load_area(shipped_path("resources"), "kansas_statewide")


def no_area() -> Area:
    raise AssertionError("only cells need the area")


def declare(split: dict[str, Any], **changes: Any) -> Dataset:
    document = declared()["usgs/streamflow"].model_dump(mode="json") | changes
    document["key"] |= {"split_by": split}
    return Dataset.model_validate(document)


def test_members_are_values_or_their_names_in_lower_case() -> None:
    listed = SplitBy(column="county", members=["Riley", "Geary"])
    assert members_of(listed, no_area) == ("geary", "riley")
    named = SplitBy(column="county", members={"20161": "riley", "20061": "Geary", "Riley County": "riley"})
    assert members_of(named, no_area) == ("geary", "riley")
    assert named.member_of_value["Riley County"] == "riley"


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        ({}, "needs either a column or h3_res"),
        ({"column": "site_no", "members": ["a"], "h3_res": 2}, "needs either a column or h3_res"),
        ({"h3_res": 2, "members": ["a"]}, "leave them out"),
        ({"h3_res": 16}, "less than or equal to 15"),
        ({"column": "site_no"}, "members must be 1 to 1000 values of 'site_no', not 0"),
        ({"column": "site_no", "members": [f"m{n}" for n in range(1001)]}, "1 to 1000 values of 'site_no', not 1001"),
        ({"column": "site_no", "members": ["a", "b", "a"]}, "members has 'a' more than once"),
        ({"column": "site_no", "members": ["Riley", "riley"]}, "differ in upper and lower case alone"),
        ({"column": "site_no", "members": ["a-b"]}, "should match pattern"),
        ({"column": "site_no", "members": {"Riley County": "riley:county"}}, "should match pattern"),
        ({"column": "county", "members": ["a"]}, "key.split_by: 'county' must be a column of the table"),
        ({"column": "observed_at", "members": ["a"]}, "'observed_at' must be a column of the table of type string"),
        ({"column": "site_no", "members": ["a"], "others": "drop"}, "'refuse' or 'ignore'"),
    ],
)
def test_a_split_that_cannot_work_is_refused(split: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        declare(split)


def test_a_thousand_members_are_not_too_many() -> None:
    assert len(members_of(SplitBy(column="tile", members=[f"m{n}" for n in range(1000)]), no_area)) == 1000


def test_a_fold_and_a_split_exclude_each_other() -> None:
    document = declared()["usgs/streamflow"].model_dump(mode="json")
    document["key"] |= {"split_by": {"h3_res": 2}, "fold_by": "year"}
    with pytest.raises(ValidationError, match="fold_by and split_by exclude each other"):
        Dataset.model_validate(document)


def test_cells_need_places() -> None:
    table = declared()["drought/tribal-areas"].model_dump(mode="json")
    table["key"] |= {"split_by": {"h3_res": 2}}
    with pytest.raises(ValidationError, match=r"h3_res needs table.longitude_column and table.latitude_column"):
        Dataset.model_validate(table)


def test_the_split_is_part_of_the_digest_where_there_is_one() -> None:
    digests = {
        declare({"column": "site_no", "members": ["a"], "others": others}).digest for others in ("refuse", "ignore")
    }
    assert len(digests | {declared()["usgs/streamflow"].digest}) == 3


def test_a_limit_may_begin_with_a_member() -> None:
    limits = {"limits": [{"prefix": "usgs-streamflow:kansas_statewide-riley:", "runs": 1}]}
    split = {"column": "site_no", "members": ["riley"]}
    assert declare(split, concurrency=limits).concurrency.limits
    with pytest.raises(ValidationError, match="no key of this dataset begins with"):
        declare(split, concurrency={"limits": [{"prefix": "usgs-streamflow:kansas_statewide:", "runs": 1}]})


@pytest.mark.parametrize("resolution", range(6))
def test_every_place_in_the_area_is_in_a_member(resolution: int) -> None:
    members = set(cells_of_area(KANSAS, resolution))
    west, south, east, north = KANSAS.shape.bounds

    @given(st.floats(west, east), st.floats(south, north))
    @settings(max_examples=300, derandomize=True)
    def check(longitude: float, latitude: float) -> None:
        if shapely.intersects_xy(KANSAS.shape, longitude, latitude):
            assert h3.latlng_to_cell(latitude, longitude, resolution) in members

    check()
    on_edge = shapely.segmentize(KANSAS.shape.exterior, 0.01).coords
    assert {h3.latlng_to_cell(latitude, longitude, resolution) for longitude, latitude in on_edge} <= members


def test_members_are_not_far_from_the_area() -> None:
    far = [
        cell
        for cell in cells_of_area(KANSAS, 4)
        if shapely.Point(h3.cell_to_latlng(cell)[::-1]).distance(KANSAS.shape) > 0.4
    ]
    assert far == []
    assert 120 < len(cells_of_area(KANSAS, 4)) < 160  # 213,100 km² of cells of 1,770 km², and the edge


@pytest.mark.parametrize("resolution", [6, 15])
def test_too_many_cells_are_refused_before_they_are_made(resolution: int) -> None:
    with pytest.raises(
        DeclarationInvalid, match=f"more than 1000 cells of resolution {resolution} cover kansas_statewide"
    ):
        cells_of_area(KANSAS, resolution)


def test_a_dataset_without_a_split_has_no_members(tmp_path: Path) -> None:
    assert Datasets(dict(declared()), tmp_path).members_of("usgs/streamflow") == ()


def test_cells_of_a_missing_area_are_a_sentence(tmp_path: Path) -> None:
    datasets = Datasets({"usgs/streamflow": declare({"h3_res": 2})}, tmp_path)
    with pytest.raises(DeclarationInvalid, match="there is no area 'kansas_statewide'"):
        datasets.members_of("usgs/streamflow")


@pytest.mark.parametrize("resolution", range(5))
@pytest.mark.parametrize("latitude", [31.0, 38.5, 47.0, 59.0])
def test_edges_of_cells_are_arcs_and_not_straight_lines(resolution: int, latitude: float) -> None:
    """An area without a corner in the cell, and with a side between the line through two of its corners and the arc."""
    corners = h3.cell_to_boundary(h3.latlng_to_cell(latitude, -98.0, resolution))
    for one, other in zip(corners, [*corners[1:], corners[0]], strict=True):
        line, arc = [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2], middle_of_arc(one, other)
        north, east = arc[0] - line[0], arc[1] - line[1]
        ends = [(one, 0.5), (other, 0.5), (other, 6), (one, 6)]
        area = shapely.Polygon([(place[1] + far * east, place[0] + far * north) for place, far in ends])
        inside = line[0] + 0.6 * north, line[1] + 0.6 * east
        assert shapely.intersects_xy(area, inside[1], inside[0])
        assert h3.latlng_to_cell(*inside, resolution) in cells_of_area(Area("sliver", area), resolution)


def middle_of_arc(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Returns latitude and longitude of the middle between two such places on a sphere."""
    x, y, z = (sum(pair) for pair in zip(_vector(*one), _vector(*other), strict=True))
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def _vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    up, around = math.radians(latitude), math.radians(longitude)
    return math.cos(up) * math.cos(around), math.cos(up) * math.sin(around), math.sin(up)
