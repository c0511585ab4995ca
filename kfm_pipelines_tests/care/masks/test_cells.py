"""Lines and polygons get one cell each, and the whole shape is within the published uncertainty."""

from collections.abc import Iterable

import h3
import numpy as np
import pyarrow.compute as pc
import pyproj
import pytest
import shapely

from kfm_pipelines.care.masks import mask_table
from kfm_pipelines.care.masks.cells import smallest_radius
from kfm_pipelines.declarations import Extent
from kfm_pipelines_tests.fixtures.care.sites_to_mask import SECRET, beside, mask, policy, shapes
from kfm_pipelines_tests.fixtures.care.sites_to_mask import SHAPES as DATASET

RULES = {
    "generalised": {
        "line": {"method": "generalise", "resolution": 6},
        "polygon": {"method": "generalise", "resolution": 6},
    }
}
MIDDLE = h3.cell_to_latlng(h3.latlng_to_cell(38.5, -98.0, 6))[::-1]


def line(length: float) -> shapely.LineString:
    return shapely.LineString([(MIDDLE[0] - length / 2, MIDDLE[1]), (MIDDLE[0] + length / 2, MIDDLE[1] + 0.01)])


def square(side: float) -> shapely.Polygon:
    half = side / 2
    return shapely.box(MIDDLE[0] - half, MIDDLE[1] - half, MIDDLE[0] + half, MIDDLE[1] + half)


SHAPES = {
    "short line": line(0.01),
    "long line": line(1.3),
    "line across Kansas": line(6.5),
    "lines in two parts": shapely.MultiLineString([line(0.02), shapely.transform(line(0.02), lambda xy: xy + 0.3)]),
    "small polygon": square(0.01),
    "large polygon": square(0.8),
    "polygons in two parts": shapely.MultiPolygon([square(0.1), shapely.transform(square(0.1), lambda xy: xy - 0.5)]),
    "polygon with a hole": square(0.5).difference(square(0.2)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_whole_shape_is_within_the_uncertainty_around_one_cell(name: str) -> None:
    shape = SHAPES[name]
    [*rows] = mask(shapes(beside(shape, 5)), RULES).table.to_pylist()
    assert len(rows) == 5
    assert len({row["cell"] for row in rows}) == 1
    latitude, longitude = h3.cell_to_latlng(rows[0]["cell"])
    for x, y in shapely.get_coordinates(shapely.segmentize(shape, 0.001)):
        _, _, distance = pyproj.Geod(ellps="WGS84").inv(longitude, latitude, x, y)
        assert distance <= rows[0]["uncertainty_m"]
    middle = shapely.centroid(shape)
    resolution = h3.get_resolution(rows[0]["cell"])
    assert rows[0]["cell"] == h3.latlng_to_cell(middle.y, middle.x, resolution)
    outline = shapely.from_wkb(rows[0]["outline"])
    assert outline.geom_type == "Polygon"
    assert len(shapely.get_coordinates(outline)) == len(h3.cell_to_boundary(rows[0]["cell"])) + 1


# A square and a line in metres, small enough for a cell of resolution 7.
GEOD = pyproj.Geod(ellps="WGS84")
MOVING = {"polygon": [(-100, -100), (100, -100), (100, 100), (-100, 100)], "line": [(-250, 0), (0, 40), (250, 0)]}


def on_the_ground(kind: str, longitude: float, latitude: float) -> shapely.Geometry:
    """Returns the shape at this place."""
    corners = np.array(MOVING[kind], np.float64)
    azimuths, distances = np.degrees(np.arctan2(corners[:, 0], corners[:, 1])), np.hypot(*corners.T)
    east, north, _ = GEOD.fwd(np.full(len(corners), longitude), np.full(len(corners), latitude), azimuths, distances)
    build = shapely.Polygon if kind == "polygon" else shapely.LineString
    return build(np.column_stack([east, north]))


@pytest.mark.parametrize("kind", MOVING)
def test_the_resolution_of_a_cell_does_not_reveal_where_in_it_the_shape_lies(kind: str) -> None:
    rng = np.random.default_rng(5)
    moved = [
        on_the_ground(kind, *at)
        for at in zip(rng.uniform(-98.3, -98.2, 1500), rng.uniform(38.4, 38.5, 1500), strict=True)
    ]
    rules = {"generalised": {kind: {"method": "generalise", "resolution": 7}}}
    masked = mask(shapes(moved), rules)
    placed = masked.crosswalk.join(masked.table, "record").filter(pc.field("cell").is_valid()).to_pylist()
    assert len(placed) > 1300
    assert {h3.get_resolution(row["cell"]) for row in placed} == {7}
    for row in placed:
        reach = farthest(row["cell"], shapely.get_coordinates(moved[row["row"]]))
        assert reach <= row["uncertainty_m"]
        assert row["uncertainty_m"] == pytest.approx(1.5 * farthest(row["cell"], corners(row["cell"])), rel=0.003)


@pytest.mark.parametrize("resolution", range(16))
def test_no_cell_is_smaller_than_the_smallest_radius(resolution: int) -> None:
    """The smallest cells are next to the pentagons."""
    near = {cell for pentagon in h3.get_pentagons(resolution) for cell in h3.grid_disk(pentagon, 2)}
    smallest = min(farthest(cell, corners(cell)) for cell in near)
    assert 0.8 * smallest < smallest_radius(resolution) < smallest


@pytest.mark.parametrize("side", [0.001, 0.02, 0.1, 0.2, 0.8, 2.0])
def test_a_cell_is_no_coarser_than_its_shape_requires(side: float) -> None:
    shape = square(side)
    resolution = h3.get_resolution(mask(shapes(beside(shape, 5)), RULES).table.column("cell")[0].as_py())
    size = max(GEOD.inv(MIDDLE[0], MIDDLE[1], x, y)[2] for x, y in shapely.get_coordinates(shape))
    assert (resolution == 6) == (side < 0.015)
    assert size <= smallest_radius(resolution) / 2
    assert resolution == 6 or size > 0.99 * smallest_radius(resolution + 1) / 2


def corners(cell: str) -> list[tuple[float, float]]:
    return [(longitude, latitude) for latitude, longitude in h3.cell_to_boundary(cell)]


def farthest(cell: str, coordinates: Iterable[tuple[float, float]]) -> float:
    latitude, longitude = h3.cell_to_latlng(cell)
    east, north = np.array(list(coordinates), np.float64).T
    return float(max(GEOD.inv(np.full(len(east), longitude), np.full(len(east), latitude), east, north)[2]))


WORLD = DATASET.model_copy(update={"extent": Extent(west=-180.0, south=-90.0, east=180.0, north=90.0)})
WIDE = shapely.LineString([(-179, -60), (0, 0), (179, 60)])


def test_a_shape_larger_than_any_cell_has_no_place() -> None:
    table = mask_table(shapes(beside(WIDE, 5)), WORLD, policy(RULES), SECRET).table
    assert table.column("cell").to_pylist() == [None] * 5
    assert table.column("outline").to_pylist() == [None] * 5


def test_shapes_without_a_cell_are_never_too_few() -> None:
    lines = [WIDE] * 5 + beside(line(0.01), 5) + [shapely.transform(line(0.01), lambda xy: xy + 1)] * 2
    table = mask_table(shapes(lines), WORLD, policy(RULES), SECRET).table
    assert table.column("cell").null_count == 7
    assert mask_table(shapes(lines[2:]), WORLD, policy(RULES), SECRET).table.column("cell").null_count == 5
    assert mask_table(shapes(lines[3:-2]), WORLD, policy(RULES), SECRET).table.column("cell").null_count == 7


def test_the_largest_cells_are_used_as_well() -> None:
    cell = h3.latlng_to_cell(MIDDLE[1], MIDDLE[0], 0)
    latitude, longitude = h3.cell_to_latlng(cell)
    long = shapely.LineString([(longitude, latitude - 3.5), (longitude, latitude + 3.5)])
    table = mask_table(shapes(beside(long, 5)), WORLD, policy(RULES), SECRET).table
    assert table.column("cell").to_pylist() == [cell] * 5


def test_lines_and_polygons_of_one_class_are_counted_separately() -> None:
    masked = mask(shapes([line(0.01)] * 3 + [square(0.01)] * 3), RULES)
    assert masked.table.num_rows == 0


def test_too_few_shapes_in_a_cell_have_no_place() -> None:
    elsewhere = shapely.transform(square(0.01), lambda xy: xy + 1)
    masked = mask(shapes([square(0.01)] * 4 + [elsewhere] * 4), RULES)
    assert masked.table.column("cell").to_pylist() == [None] * 8
    assert masked.table.column("outline").to_pylist() == [None] * 8
