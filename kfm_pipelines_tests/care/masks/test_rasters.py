"""Raster masks leave no value under a sensitive footprint and do not reveal its outline."""

import h3
import numpy as np
import pyproj
import pytest
import shapely

from kfm_pipelines.care.masks.rasters import mask_raster
from kfm_pipelines.care.rules import MaskRaster
from kfm_pipelines.errors import PolicyRefused

TRANSFORM = (0.02, 0.0, -99.0, 0.0, -0.02, 39.0)  # 100 × 100 cells from 99° W 39° N
NODATA = -9999.0
FOOTPRINT = shapely.box(-98.04, 37.99, -98.0, 38.02)
GEOD = pyproj.Geod(ellps="WGS84")
HIDE = MaskRaster(method="nodata", resolution=5)
BLEND = MaskRaster(method="aggregate", resolution=5)


def raster() -> np.ndarray:
    return np.random.default_rng(7).uniform(0, 100, (100, 100))


def boxes() -> np.ndarray:
    row, column = np.mgrid[0:100, 0:100]
    west, north = -99.0 + 0.02 * column, 39.0 - 0.02 * row
    return np.asarray(shapely.box(west, north - 0.02, west + 0.02, north))


def metres_away(footprint: shapely.Geometry, resolution: int = 5) -> tuple[np.ndarray, float]:
    """Returns distances of raster cells from the centre of the footprint's H3 cell, and how far the footprint may
    extend from there."""
    middle = footprint.centroid
    cell = h3.latlng_to_cell(middle.y, middle.x, resolution)
    latitude, longitude = h3.cell_to_latlng(cell)
    row, column = np.mgrid[0:100, 0:100]
    here = np.full((100, 100), longitude), np.full((100, 100), latitude)
    _, _, away = GEOD.inv(*here, -99.0 + 0.02 * (column + 0.5), 39.0 - 0.02 * (row + 0.5))
    edges = [GEOD.inv(longitude, latitude, x, y)[2] for y, x in h3.cell_to_boundary(cell)]
    return away, 1.5 * max(edges)


def hole(footprint: shapely.Geometry) -> np.ndarray:
    return np.asarray(mask_raster(raster(), TRANSFORM, [footprint], HIDE, NODATA) == NODATA)


def test_every_raster_cell_in_the_circle_around_the_h3_cell_has_no_value() -> None:
    published = mask_raster(raster(), TRANSFORM, [FOOTPRINT], HIDE, NODATA)
    away, reach = metres_away(FOOTPRINT)
    touched = published == NODATA
    assert touched.sum() > 60
    assert touched[away <= reach].all()
    half_of_a_raster_cell = 1500
    assert not touched[away > 1.02 * reach + half_of_a_raster_cell].any()
    assert (published[~touched] == raster()[~touched]).all()


@pytest.mark.parametrize("rule", [HIDE, BLEND])
def test_no_value_under_a_footprint_remains(rule: MaskRaster) -> None:
    """Above all where the footprint extends beyond the H3 cell of its centroid."""
    rng = np.random.default_rng(3)
    fine = (0.005, 0.0, -98.5, 0.0, -0.005, 38.5)
    values = rng.uniform(0, 100, (200, 200))
    row, column = np.mgrid[0:200, 0:200]
    west, north = -98.5 + 0.005 * column, 38.5 - 0.005 * row
    over_the_edge = 0
    for x, y in rng.uniform((-98.1, 37.9), (-97.9, 38.1), (50, 2)):
        footprint = shapely.box(x - 0.02, y - 0.02, x + 0.02, y + 0.02)
        over_the_edge += len({h3.latlng_to_cell(b, a, 5) for a, b in shapely.get_coordinates(footprint)}) > 1
        under = (west <= x + 0.02) & (west >= x - 0.025) & (north >= y - 0.02) & (north <= y + 0.025)
        published = mask_raster(values, fine, [footprint], rule, NODATA)
        assert under.sum() >= 64
        assert not (published[under] == values[under]).any()
    assert over_the_edge > 5


def test_a_footprint_at_the_180th_meridian_is_masked_on_both_sides() -> None:
    world = (0.1, 0.0, -180.0, 0.0, -0.1, 40.0)
    published = mask_raster(np.ones((40, 3600)), world, [shapely.Point(179.99, 38.0)], HIDE, NODATA)
    assert (published[20] == NODATA)[[0, -1]].all()
    assert (published == NODATA).sum() < 100


def test_the_masked_area_does_not_reveal_the_footprint() -> None:
    own_outline = shapely.intersects(boxes(), FOOTPRINT)
    assert hole(FOOTPRINT).sum() > 3 * own_outline.sum()
    elsewhere_in_the_cell = shapely.transform(FOOTPRINT, lambda xy: xy + 0.01).buffer(0.005)
    assert (hole(FOOTPRINT) == hole(elsewhere_in_the_cell)).all()


def test_an_aggregate_is_the_mean_of_the_valid_cells_under_it() -> None:
    values = raster()
    touched = hole(FOOTPRINT)
    rows, columns = np.nonzero(touched)
    values[rows[0], columns[0]] = NODATA
    values[rows[1], columns[1]] = np.nan
    published = mask_raster(values, TRANSFORM, [FOOTPRINT], BLEND, NODATA)
    expected = raster()[rows[2:], columns[2:]].mean()
    assert np.allclose(published[touched], expected)
    assert (published[~touched] == values[~touched]).all()


def test_a_single_value_is_not_published_as_its_mean() -> None:
    values = np.full((100, 100), NODATA)
    row, column = np.argwhere(hole(FOOTPRINT))[5]
    values[row, column] = 42.0
    assert (mask_raster(values, TRANSFORM, [FOOTPRINT], BLEND, NODATA) == NODATA).all()


def test_a_large_footprint_gets_a_larger_cell() -> None:
    wide = shapely.box(-98.3, 37.8, -97.9, 38.2)
    away, reach = metres_away(wide, 3)
    assert hole(wide)[away <= reach].all()
    assert hole(wide)[shapely.intersects(boxes(), wide)].all()


def test_all_bands_and_whole_numbers_are_masked_alike() -> None:
    bands = np.stack([raster(), raster() * 2]).astype(np.int16)
    hidden = mask_raster(bands, TRANSFORM, [FOOTPRINT], HIDE, NODATA)
    blended = mask_raster(bands, TRANSFORM, [FOOTPRINT], BLEND, NODATA)
    touched = hole(FOOTPRINT)
    assert hidden.dtype == blended.dtype == np.int16
    assert (hidden[:, touched] == NODATA).all()
    assert [len(np.unique(band[touched])) for band in blended] == [1, 1]
    assert blended[0][touched][0] == round(bands[0][touched].mean())


def test_the_input_is_not_changed() -> None:
    values = raster()
    mask_raster(values, TRANSFORM, [FOOTPRINT], HIDE, NODATA)
    assert (values == raster()).all()


def test_a_footprint_outside_of_the_raster_changes_nothing() -> None:
    away = shapely.transform(FOOTPRINT, lambda xy: xy - 3)
    assert (mask_raster(raster(), TRANSFORM, [away], HIDE, NODATA) == raster()).all()
    assert (mask_raster(raster(), TRANSFORM, [], HIDE, NODATA) == raster()).all()


@pytest.mark.parametrize(
    ("transform", "footprint", "sentence"),
    [
        ((0.02, 0.0, -99.0, 0.0, 0.02, 39.0), FOOTPRINT, "the raster must be north-up"),
        ((0.02, 0.001, -99.0, 0.0, -0.02, 39.0), FOOTPRINT, "the raster must be north-up"),
        (TRANSFORM, shapely.Polygon(), "a footprint is empty"),
        (TRANSFORM, shapely.Point(float("nan"), 38), "a footprint is empty or has a coordinate that is not a finite"),
        (TRANSFORM, shapely.LineString([(-179, -60), (0, 0), (179, 60)]), "a footprint is larger than any cell"),
        (TRANSFORM, shapely.Point(-98, 89.9), "a footprint is too close to a pole"),
    ],
)
def test_rasters_and_footprints_that_cannot_be_masked_are_refused(
    transform: tuple[float, float, float, float, float, float], footprint: shapely.Geometry, sentence: str
) -> None:
    with pytest.raises(PolicyRefused, match=f"^{sentence}"):
        mask_raster(raster(), transform, [footprint], HIDE, NODATA)


def test_a_type_that_cannot_hold_nodata_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="cannot hold its nodata value"):
        mask_raster(raster().astype(np.uint8), TRANSFORM, [FOOTPRINT], HIDE, NODATA)
