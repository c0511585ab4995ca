"""The map of what is published: from Items and their files alone, each dataset in a panel of its own."""

from io import BytesIO
from pathlib import Path

import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from matplotlib.figure import Figure
from PIL import Image

from kfm_pipelines.catalog.published_map import _frame, _raster, _shapes
from kfm_pipelines.declarations.rasters import Picture
from kfm_pipelines_tests.fixtures.features import as_geoparquet, plots
from kfm_pipelines_tests.fixtures.rasters.invented import NORTH, PIXEL, VALUES, WEST, geotiff
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

KANSAS = (-102.06, 36.99, -94.58, 40.01)
FOOTPRINT = {"type": "Polygon", "coordinates": [[[-98, 38], [-97, 38], [-97, 39], [-98, 38]]]}


def to_file(table: pa.Table) -> bytes:
    file = BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def drawn(data: bytes) -> tuple[int, int, int]:
    """Returns how many polygons, lines and points are drawn."""
    axes = Figure().add_subplot()
    _shapes(data, FOOTPRINT)(axes)
    polygons, lines, points = axes.collections
    return len(polygons.get_paths()), len(lines.get_paths()), len(np.asarray(points.get_offsets()))


def test_cells_are_drawn_as_hexagons_once_each() -> None:
    cells = [h3.latlng_to_cell(38.0, -98.0 + step, 5) for step in (0, 1, 2, 2)]
    assert drawn(to_file(pa.table({"h3_cell": [*cells, None]}))) == (3, 0, 0)


def test_geometries_are_drawn_by_their_kind() -> None:
    shapes = shapely.box(-98, 38, -97, 39), shapely.LineString([(-98, 38), (-97, 39)]), shapely.Point(-98, 38)
    assert drawn(as_geoparquet(plots(*shapes))) == (1, 1, 1)


def test_a_table_without_places_shows_the_footprint_of_its_item() -> None:
    assert drawn(to_file(pa.table({"name": ["one"]}))) == (1, 0, 0)


def test_a_raster_lies_where_it_is_in_the_colours_that_are_declared() -> None:
    axes = Figure().add_subplot()
    _raster(geotiff(VALUES), Picture(min=0, max=11, palette="turbo"))(axes)
    [image] = axes.images
    height, width = VALUES.shape
    assert image.get_extent() == pytest.approx([WEST, WEST + width * PIXEL, NORTH - height * PIXEL, NORTH])
    np.testing.assert_array_equal(image.get_array(), VALUES)
    assert (image.get_cmap().name, image.get_clim()) == ("turbo", (0, 11))


@pytest.mark.parametrize(
    ("box", "frame"),
    [
        ((-100.0, 37.5, -95.0, 39.5), KANSAS),  # most of the area: all of it
        ((-97.0, 38.0, -96.9, 38.1), (-97.05, 37.95, -96.85, 38.15)),  # a part: twice its size
    ],
)
def test_small_layers_are_drawn_from_nearby(box: tuple[float, ...], frame: tuple[float, ...]) -> None:
    west, south, east, north = _frame(box, KANSAS)
    assert (west <= frame[0], south <= frame[1], east >= frame[2], north >= frame[3]) == (True, True, True, True)
    assert (east - west) < 1.7 * (frame[2] - frame[0]) + 0.2


def test_the_command_draws_the_newest_key_of_each_dataset(site: Site, tmp_path: Path) -> None:
    for hour in range(2):
        site.put(hour)
    assert site.work()["published"] == 2
    picture = tmp_path / "map.png"
    answer = kfm(site.environment, "catalog", "map", "--out", str(picture), "--json").json
    assert answer == {"picture": str(picture), "keys": [site.key(1)]}
    with Image.open(picture) as opened:
        assert len(set(opened.convert("RGB").crop((20, 20, 470, 270)).getdata())) > 10
