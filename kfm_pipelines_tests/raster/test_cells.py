"""H3 cells count pixels by the share of them that lies in the cell; nothing is lost or counted twice."""

import h3
import numpy as np
import pytest
import shapely
from rasterio.warp import transform_geom

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.cells import cell_statistics
from kfm_pipelines.raster.cog import row_areas
from kfm_pipelines.raster.grid import Pixels
from kfm_pipelines_tests.fixtures.rasters.invented import VALUES, pixels

TOLERANCE = 1e-6  # relative, as docs/datasets.md states
UTM = {"crs": "EPSG:32614", "pixel": 500.0, "west": 600_000.0, "north": 4_300_000.0}


def counted_by_hand(made: Pixels, cell: str) -> tuple[float, float, float]:
    """Intersects each pixel with the outline of the cell: count, sum and mean."""
    ring = shapely.Polygon([(east, north) for north, east in h3.cell_to_boundary(cell)])
    if not made.grid.crs.is_geographic:
        ring = shapely.geometry.shape(transform_geom("EPSG:4326", made.grid.crs, shapely.geometry.mapping(ring)))
    west, _, _, north = made.grid.bounds
    wide, areas = made.grid.transform.a, row_areas(made.grid)
    count = total = weighted = weights = 0.0
    for (row, column), value in np.ndenumerate(made.values[0]):
        left, top = west + column * wide, north - row * wide
        share = shapely.box(left, top - wide, left + wide, top).intersection(ring).area / wide**2
        if share and not np.isnan(value):
            count, total = count + share, total + share * float(value)
            weighted, weights = weighted + share * areas[row] * float(value), weights + share * areas[row]
    return count, total, weighted / weights


@pytest.mark.parametrize("place", [{}, UTM])
def test_cells_agree_with_a_count_by_hand(place: dict[str, float]) -> None:
    values = VALUES.copy()
    values[1, 2] = np.nan
    made = pixels(values, **place)  # type: ignore[arg-type]
    found = cell_statistics(made, 5 if not place else 8)
    assert len(found.cells) > 4
    for number, cell in enumerate(found.cells):
        count, total, mean = counted_by_hand(made, cell)
        [measures] = found.measures
        assert measures["count"][number] == pytest.approx(count, rel=TOLERANCE, abs=TOLERANCE)
        assert measures["sum"][number] == pytest.approx(total, rel=TOLERANCE, abs=1e-5)
        assert measures["mean"][number] == pytest.approx(mean, rel=1e-4 if count < 1e-3 else TOLERANCE, abs=1e-5)


@pytest.mark.parametrize("place", [{}, UTM])
@pytest.mark.parametrize("resolution", [4, 7])
def test_sums_and_counts_of_all_cells_are_those_of_the_raster(place: dict[str, float], resolution: int) -> None:
    values = np.random.default_rng(3).random((40, 50))
    values[10:20, 5:30] = np.nan
    made = pixels(values, **place)  # type: ignore[arg-type]
    [measures] = cell_statistics(made, resolution).measures
    assert measures["sum"].sum() == pytest.approx(np.nansum(made.values.astype(np.float64)), rel=TOLERANCE)
    assert measures["count"].sum() == pytest.approx((~np.isnan(values)).sum(), rel=TOLERANCE)


def test_cells_are_in_order_and_each_has_a_value() -> None:
    found = cell_statistics(pixels(), 5)
    [measures] = found.measures
    assert found.cells == sorted(found.cells)
    assert (measures["count"] > 0).all()
    assert (measures["min"] <= measures["mean"]).all()
    assert (measures["mean"] <= measures["max"]).all()
    centres = [h3.cell_to_latlng(cell) for cell in found.cells]
    assert list(zip(found.latitudes, found.longitudes, strict=True)) == centres


def test_numbers_have_the_precision_of_pixels_and_may_be_larger() -> None:
    [measures] = cell_statistics(pixels(VALUES / 7), 5).measures
    for numbers in measures.values():
        np.testing.assert_array_equal(numbers, numbers.astype(np.float32).astype(np.float64))
    [large] = cell_statistics(pixels(np.full((3, 4), 3e38)), 3).measures
    assert large["sum"].sum() == pytest.approx(12 * 3e38, rel=TOLERANCE)


def test_each_band_has_its_own_values() -> None:
    """A cell in which one band has nothing has a count of 0 there, and no mean."""
    second = VALUES + 1000
    second[0] = np.nan
    found = cell_statistics(pixels(np.stack([VALUES, second])), 6)
    first, other = found.measures
    assert first["max"].max() == 11
    assert np.nanmax(other["max"]) == 1011
    empty = other["count"] == 0
    assert empty.any()
    assert np.isnan(other["mean"][empty]).all()
    assert np.isnan(other["sum"][empty]).all()


def test_a_raster_without_values_has_no_cells() -> None:
    found = cell_statistics(pixels(np.full((3, 4), np.nan)), 6)
    assert (found.cells, [len(one["count"]) for one in found.measures]) == ([], [0])


def test_a_resolution_with_too_many_cells_is_refused() -> None:
    with pytest.raises(InputUnreadable, match=r"covers about \d+ cells of resolution 13; choose a coarser one"):
        cell_statistics(pixels(), 13)
