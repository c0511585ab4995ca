"""A table that cannot be masked is refused with one clear sentence that contains none of the data."""

import traceback
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.care.masks import mask_table
from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.care.sites_to_mask import (
    SECRET,
    SHAPES,
    SITES,
    generalise,
    mask,
    policy,
    shapes,
    sites,
)

RULES = {"generalised": generalise(5)}
NAN, INFINITE = float("nan"), float("inf")


def one_wrong(**columns: Any) -> pa.Table:
    """Returns ten sites, the last of which has these values."""
    good = sites([-98.123456] * 10, [38.654321] * 10)
    values = {name: [*good.column(name).to_pylist()[:-1], value] for name, value in columns.items()}
    return sites(values.pop("longitude", [-98.123456] * 10), values.pop("latitude", [38.654321] * 10), **values)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"sensitivity": None}, "1 record has no class in 'sensitivity'"),
        (
            {"sensitivity": "canary"},
            "1 record has a class in 'sensitivity' that policy heritage-sites@1 has no rules for",
        ),
        (
            {"sensitivity": "withheld"},
            "1 record has a class in 'sensitivity' that policy heritage-sites@1 has no rules for",
        ),
        ({"site_id": None}, "1 record has no value in 'site_id', which identifies the feature"),
        ({"longitude": None}, "1 record has a coordinate that is missing or not a finite number"),
        ({"latitude": None}, "1 record has a coordinate that is missing or not a finite number"),
        ({"longitude": NAN}, "1 record has a coordinate that is missing or not a finite number"),
        ({"latitude": INFINITE}, "1 record has a coordinate that is missing or not a finite number"),
        ({"latitude": -INFINITE}, "1 record has a coordinate that is missing or not a finite number"),
        ({"longitude": -88.123456}, "1 record has a place outside the extent of the dataset"),
        ({"latitude": 0.0, "longitude": 0.0}, "1 record has a place outside the extent of the dataset"),
        ({"latitude": 4234567.891, "longitude": 123456.789}, "1 record has a place outside the extent of the dataset"),
        (
            {"latitude": -98.123456, "longitude": 38.654321},
            "1 record has a place outside the extent of the dataset; "
            "with latitude and longitude swapped they would be inside",
        ),
    ],
)
def test_one_invalid_record_refuses_the_release(wrong: dict[str, Any], sentence: str) -> None:
    refused(one_wrong(**wrong), sentence)


@pytest.mark.parametrize(
    ("longitude", "latitude", "outward"),
    [(-102.1, 38.0, (-1, 0)), (-94.55, 38.0, (1, 0)), (-98.0, 36.95, (0, -1)), (-98.0, 40.05, (0, 1))],
)
def test_the_extent_includes_its_edge(longitude: float, latitude: float, outward: tuple[int, int]) -> None:
    assert mask(sites([longitude] * 5, [latitude] * 5), RULES).table.num_rows == 5
    beyond = sites([longitude + 1e-9 * outward[0]] * 5, [latitude + 1e-9 * outward[1]] * 5)
    refused(beyond, "5 records have a place outside the extent of the dataset")


def test_a_swap_is_suggested_only_when_it_explains_every_record() -> None:
    refused(sites([38.0, -88.0], [-98.0, 38.0]), "2 records have a place outside the extent of the dataset")


def test_invalid_records_are_counted() -> None:
    refused(sites([NAN] * 3, [38.0] * 3), "3 records have a coordinate that is missing or not a finite number")


POINT = shapely.Point(-98.123456, 38.654321)
LINE = shapely.LineString([(-98.123456, 38.654321), (-98.0, 38.0)])


@pytest.mark.parametrize(
    ("geometry", "sentence"),
    [
        (None, "1 record has no geometry"),
        (b"INVENTED bytes", "1 record has something in 'outline' that is not WKB"),
        (b"", "1 record has something in 'outline' that is not WKB"),
        (POINT.wkb[:-1], "1 record has something in 'outline' that is not WKB"),
        (shapely.Point(), "1 record has an empty geometry"),
        (shapely.Polygon(), "1 record has an empty geometry"),
        (shapely.MultiPoint([POINT, POINT]), "1 record has a geometry that is not a point, line or polygon"),
        (shapely.GeometryCollection([POINT]), "1 record has a geometry that is not a point, line or polygon"),
        (
            shapely.to_wkb(shapely.set_srid(POINT, 26914), include_srid=True),
            "1 record has a geometry in a reference system other than WGS 84",
        ),
        (
            LINE,
            "1 record has a line as place, for which policy heritage-sites@1 has no rule in class 'generalised'",
        ),
        (
            POINT.buffer(0.01),
            "1 record has a polygon as place, for which policy heritage-sites@1 has no rule in class 'generalised'",
        ),
        (
            shapely.LineString([(-98.123456, 38.654321), (NAN, 38)]),
            "1 record has a coordinate that is missing or not a finite number",
        ),
        (
            shapely.LineString([(-98.123456, 38.654321), (-88, 38)]),
            "1 record has a place outside the extent of the dataset",
        ),
        (
            shapely.Point(38.654321, -98.123456),
            "1 record has a place outside the extent of the dataset; "
            "with latitude and longitude swapped they would be inside",
        ),
    ],
)
def test_one_invalid_geometry_refuses_the_release(geometry: Any, sentence: str) -> None:
    refused(shapes([*[POINT] * 9, geometry]), sentence)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (sites([-98.0], [38.0]).drop(["period"]), "the declared column 'period' is missing"),
        (
            sites([-98.0], [38.0]).append_column("canary", pa.array([1])),
            "the table has 1 undeclared column, which no policy covers",
        ),
        (
            sites([-98.0], [38.0]).set_column(4, "longitude", pa.array(["-98.123456"])),
            "the column 'longitude' must hold degrees as float64",
        ),
        (
            shapes([POINT]).set_column(11, "outline", pa.array([POINT.wkt])),
            "the column 'outline' must hold WKB as binary",
        ),
    ],
)
def test_a_table_that_differs_from_its_declaration_is_refused(table: pa.Table, sentence: str) -> None:
    refused(table, sentence)


def test_an_open_policy_is_refused() -> None:
    with pytest.raises(PolicyRefused, match=r"^policy not-sensitive@\d is open, so there is nothing to mask$"):
        mask_table(sites([-98.0], [38.0]), SITES, load_policy(shipped_path("resources"), "not-sensitive"), SECRET)


def test_a_policy_for_other_columns_is_refused() -> None:
    other = policy(RULES, columns={"keep": ["period"], "withhold": ["site_id"]})
    with pytest.raises(PolicyRefused, match=r"^policy heritage-sites@1 does not suit heritage/sites: "):
        mask_table(sites([-98.0], [38.0]), SITES, other, SECRET)


def test_an_internal_error_becomes_a_refusal_without_data() -> None:
    table = sites([-98.123456] * 10, [38.654321] * 10)
    broken = policy({"generalised": generalise(5)})
    object.__setattr__(broken.classes["generalised"].point, "resolution", "INVENTED-000001")
    with pytest.raises(PolicyRefused, match=r"^masking failed: [A-Za-z]+Error in cells$") as refusal:
        mask_table(table, SITES, broken, SECRET)
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None
    assert "INVENTED" not in "".join(traceback.format_exception(refusal.value))


def refused(table: pa.Table, sentence: str) -> None:
    with pytest.raises(PolicyRefused) as refusal:
        mask(table, RULES)
    assert str(refusal.value) == sentence
    assert refusal.value.__context__ is None
    for value in ("98.1", "38.6", "88", "INVENTED", "Canary", "canary", "123456", "4234567", "26914"):
        assert value not in str(refusal.value)


def test_valid_records_are_not_refused() -> None:
    """The refusals above have no other cause."""
    assert mask(one_wrong(), RULES).table.num_rows == 10
    assert mask(shapes([POINT] * 10), RULES).table.num_rows == 10
    assert np.all([column.name != "canary" for column in (*SITES.table.columns, *SHAPES.table.columns)])
