"""Maps draw every place they may, and the same places give the same bytes."""

from io import BytesIO
from pathlib import Path

import h3
import numpy as np
import pytest
from PIL import Image

from kfm_pipelines.care.review.page.hexagons import (
    LabelLayout,
    build_hexagons,
    edge_labels,
    place_labels,
    shade_edges,
    shade_of,
)
from kfm_pipelines.care.review.page.legend import INK, LEFT, RIGHT, WIDTH, point_style
from kfm_pipelines.care.review.page.maps import draw_map
from kfm_pipelines.care.review.page.places import CellCount, MapPlaces, Points, load_outline
from kfm_pipelines.declarations import Extent
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines_tests.fixtures.care.review_page import CLASSES, RESOURCES, cell_near, maps

KANSAS = Extent(west=-102.1, south=36.95, east=-94.55, north=40.05)


def points(count: int, *, name: str = "generalised", uncertainty_m: float = 0.0) -> Points:
    random = np.random.default_rng(1)
    return Points(
        name, random.uniform(-102, -94.6, count), random.uniform(37, 40, count), np.full(count, uncertainty_m)
    )


def drawn(places: MapPlaces, *, title: str = "A map") -> bytes:
    return draw_map(places, KANSAS, title=title)


def pixels(png: bytes, colour: str) -> int:
    """How many there are of exactly this colour."""
    wanted = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    image = np.asarray(Image.open(BytesIO(png)).convert("RGB"))
    return int((image == wanted).all(axis=2).sum())


def test_the_same_places_give_the_same_bytes() -> None:
    places = MapPlaces(cells=(CellCount(cell_near(-98, 38.5), 5),), points=(points(50, uncertainty_m=5000.0),))
    assert drawn(places) == drawn(places)


def test_the_picture_has_no_metadata() -> None:
    image = Image.open(BytesIO(maps()[1]))
    assert set(image.info) <= {"dpi"}
    assert image.width == 1152


def test_an_empty_map_has_a_note() -> None:
    def letters_in_the_middle(places: MapPlaces) -> int:
        image = Image.open(BytesIO(drawn(places)))
        buffer = BytesIO()
        image.crop((400, 250, 800, 450)).save(buffer, "png")
        return pixels(buffer.getvalue(), INK)

    assert letters_in_the_middle(MapPlaces(without_place=12)) > 200
    assert letters_in_the_middle(MapPlaces(points=(points(3),))) == 0


def test_one_place_is_drawn() -> None:
    assert pixels(drawn(MapPlaces(points=(points(1),))), "#e69f00") > 100


def test_the_uncertainty_of_a_point_is_drawn_to_scale() -> None:
    here = Points("generalised", np.array([-98.0]), np.array([38.5]), np.array([50_000.0]))
    image = np.asarray(Image.open(BytesIO(drawn(MapPlaces(points=(here,))))).convert("RGB")).astype(int)
    brown = (image[:, :, 0] - image[:, :, 2] > 40)[: int(len(image) * 0.75)]
    rows, columns = np.nonzero(brown)
    kilometres_across = 1.04 * (KANSAS.east - KANSAS.west) * 111.2 * np.cos(np.radians(38.5))
    kilometres_per_pixel = kilometres_across / (WIDTH - LEFT - RIGHT) * WIDTH / image.shape[1]
    assert np.ptp(columns) * kilometres_per_pixel == pytest.approx(100, rel=0.03)
    assert np.ptp(columns) == pytest.approx(np.ptp(rows), rel=0.03)


@pytest.mark.parametrize("name", CLASSES)
def test_classes_differ_in_shape_as_well_as_in_colour(name: str) -> None:
    others = [point_style(other, 0) for other in CLASSES if other != name]
    assert point_style(name, 0).colour not in {other.colour for other in others}
    assert point_style(name, 0).marker not in {other.marker for other in others}


def test_a_hundred_thousand_points_can_be_drawn() -> None:
    assert drawn(MapPlaces(points=(points(100_000, uncertainty_m=5000.0),))) is not None


def test_a_cell_across_the_edge_is_clipped_and_keeps_its_count_inside() -> None:
    cell = cell_near(-98, 40.3, 3)
    [hexagon] = build_hexagons([CellCount(cell, 15)])
    assert hexagon.centre[1] > 40.1
    lettering = LabelLayout(0.12, 0.08, (-102.2, 36.8), (-94.4, 40.2))
    [label] = place_labels([hexagon], lettering)
    assert label.text == "15"
    assert label.y < 40.2
    assert pixels(drawn(MapPlaces(cells=(CellCount(cell, 15),))), "#7fb0d6") > 1000


def test_a_count_is_written_only_where_it_fits() -> None:
    lettering = LabelLayout(0.12, 0.08, (-102.2, 36.8), (-94.4, 40.2))
    small, large = (build_hexagons([CellCount(cell_near(-98, 38.5, resolution), 15)]) for resolution in (6, 4))
    assert place_labels(small, lettering) == []
    assert [label.text for label in place_labels(large, lettering)] == ["15"]


@pytest.mark.parametrize("resolution", [4, 6])  # one that has room for a number of its own, and one that has not
def test_the_count_of_a_large_cell_avoids_a_small_cell_on_top(resolution: int) -> None:
    coarse = cell_near(-98, 38.5, 3)
    latitude, longitude = h3.cell_to_latlng(coarse)
    on_top = CellCount(cell_near(longitude, latitude, resolution), 5)
    lettering = LabelLayout(0.12, 0.08, (-102.2, 36.8), (-94.4, 40.2))
    *_, number = place_labels(build_hexagons([CellCount(coarse, 30), on_top]), lettering)
    assert number.text == "30"
    assert np.hypot(number.x - longitude, number.y - latitude) > 0.2


def test_an_invalid_cell_is_not_drawn() -> None:
    assert build_hexagons([CellCount("not a cell", 5)]) == []
    assert drawn(MapPlaces(cells=(CellCount("not a cell", 5),)))


def test_a_cell_across_the_antimeridian_stays_in_one_piece() -> None:
    [hexagon] = build_hexagons([CellCount(cell_near(179.9, 0, 1), 5)])
    assert np.ptp(hexagon.corners[:, 0]) < 20


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ([5], ["5 or more"]),
        ([5, 10, 15], ["5–9", "10 or more"]),
        ([1, 2, 3, 60], ["1–9", "10 or more"]),
        ([5, 12, 480], ["1–9", "10–99", "100 or more"]),
        ([5, 2_000_000], ["1–99", "100–9,999", "10,000–999,999", "1,000,000 or more"]),
        ([0, 3], ["0", "1", "2 or more"]),
        ([], []),
    ],
)
def test_shades_stand_for_round_numbers_and_are_few(counts: list[int], names: list[str]) -> None:
    assert edge_labels(shade_edges(counts)) == names


def test_more_records_are_darker() -> None:
    edges = shade_edges([5, 12, 480])
    shades = [int(shade_of(records, edges)[1:3], 16) for records in (5, 12, 480)]
    assert shades == sorted(set(shades), reverse=True)


def test_a_title_may_have_any_characters() -> None:
    assert drawn(MapPlaces(), title="$\\frac{1$ \u202e\n <b>")


def test_kansas_has_an_outline_and_lies_within_its_extent() -> None:
    outline = load_outline(RESOURCES, "kansas_statewide")
    assert 15 <= len(outline) <= 25
    assert outline[0] == outline[-1]
    assert all(
        KANSAS.west <= longitude <= KANSAS.east and KANSAS.south <= latitude <= KANSAS.north
        for longitude, latitude in outline
    )


def test_an_area_without_an_outline_has_a_map() -> None:
    assert load_outline(RESOURCES, "atlantis") == ()


def test_an_invalid_outline_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aois").mkdir()
    (tmp_path / "aois" / "here.geojson").write_text('{"type": "Feature", "geometry": null}')
    with pytest.raises(DeclarationInvalid, match=r"here\.geojson: must be a GeoJSON feature"):
        load_outline(tmp_path, "here")
