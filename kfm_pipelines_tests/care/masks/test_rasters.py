"""Rasters: nothing of what lies under a sensitive footprint is left, and the hole is not the footprint."""

import h3
import numpy as np
import pytest
import shapely

from kfm_pipelines.care.masks import masked_raster
from kfm_pipelines.care.rules import MaskRaster
from kfm_pipelines.errors import PolicyRefused

TRANSFORM = (0.02, 0.0, -99.0, 0.0, -0.02, 39.0)  # 100 × 100 cells from 99° W 39° N
NODATA = -9999.0
FOOTPRINT = shapely.box(-98.04, 37.99, -98.0, 38.02)
HIDE = MaskRaster(method="nodata", resolution=5)
BLEND = MaskRaster(method="aggregate", resolution=5)


def raster() -> np.ndarray:
    return np.random.default_rng(7).uniform(0, 100, (100, 100))


def boxes() -> np.ndarray:
    row, column = np.mgrid[0:100, 0:100]
    west, north = -99.0 + 0.02 * column, 39.0 - 0.02 * row
    return np.asarray(shapely.box(west, north - 0.02, west + 0.02, north))


def hexagon(footprint: shapely.Geometry, resolution: int = 5) -> shapely.Polygon:
    middle = footprint.centroid
    return shapely.Polygon(
        [one[::-1] for one in h3.cell_to_boundary(h3.latlng_to_cell(middle.y, middle.x, resolution))]
    )


def test_every_cell_that_touches_the_footprint_s_h3_cell_has_no_value() -> None:
    published = masked_raster(raster(), TRANSFORM, [FOOTPRINT], HIDE, NODATA)
    touched = shapely.intersects(boxes(), hexagon(FOOTPRINT))
    assert touched.sum() > 30
    assert (published[touched] == NODATA).all()
    assert (published[~touched] == raster()[~touched]).all()


def test_the_hole_does_not_show_the_footprint() -> None:
    def hole(footprint: shapely.Geometry) -> np.ndarray:
        return np.asarray(masked_raster(raster(), TRANSFORM, [footprint], HIDE, NODATA) == NODATA)

    own_outline = shapely.intersects(boxes(), FOOTPRINT)
    assert hole(FOOTPRINT).sum() > 3 * own_outline.sum()
    elsewhere_in_the_cell = shapely.transform(FOOTPRINT, lambda xy: xy + 0.01).buffer(0.005)
    assert (hole(FOOTPRINT) == hole(elsewhere_in_the_cell)).all()


def test_an_aggregate_is_the_mean_of_the_valid_cells_under_it() -> None:
    values = raster()
    touched = shapely.intersects(boxes(), hexagon(FOOTPRINT))
    rows, columns = np.nonzero(touched)
    values[rows[0], columns[0]] = NODATA
    values[rows[1], columns[1]] = np.nan
    published = masked_raster(values, TRANSFORM, [FOOTPRINT], BLEND, NODATA)
    expected = raster()[rows[2:], columns[2:]].mean()
    assert np.allclose(published[touched], expected)
    assert (published[~touched] == values[~touched]).all()


def test_the_mean_of_one_value_would_be_that_value() -> None:
    values = np.full((100, 100), NODATA)
    row, column = np.argwhere(shapely.intersects(boxes(), hexagon(FOOTPRINT)))[5]
    values[row, column] = 42.0
    assert (masked_raster(values, TRANSFORM, [FOOTPRINT], BLEND, NODATA) == NODATA).all()


def test_a_large_footprint_gets_a_larger_cell() -> None:
    wide = shapely.box(-98.3, 37.8, -97.9, 38.2)
    published = masked_raster(raster(), TRANSFORM, [wide], HIDE, NODATA)
    assert (published == NODATA)[
        shapely.intersects(boxes(), hexagon(wide, 4)) & shapely.intersects(boxes(), wide)
    ].all()
    assert (published == NODATA).sum() > shapely.intersects(boxes(), hexagon(wide, 5)).sum()


def test_all_bands_and_whole_numbers_are_masked_alike() -> None:
    bands = np.stack([raster(), raster() * 2]).astype(np.int16)
    hidden = masked_raster(bands, TRANSFORM, [FOOTPRINT], HIDE, NODATA)
    blended = masked_raster(bands, TRANSFORM, [FOOTPRINT], BLEND, NODATA)
    touched = shapely.intersects(boxes(), hexagon(FOOTPRINT))
    assert hidden.dtype == blended.dtype == np.int16
    assert (hidden[:, touched] == NODATA).all()
    assert [len(np.unique(band[touched])) for band in blended] == [1, 1]
    assert blended[0][touched][0] == round(bands[0][touched].mean())


def test_what_came_in_stays_as_it_is() -> None:
    values = raster()
    masked_raster(values, TRANSFORM, [FOOTPRINT], HIDE, NODATA)
    assert (values == raster()).all()


def test_a_footprint_outside_of_the_raster_changes_nothing() -> None:
    away = shapely.transform(FOOTPRINT, lambda xy: xy - 3)
    assert (masked_raster(raster(), TRANSFORM, [away], HIDE, NODATA) == raster()).all()
    assert (masked_raster(raster(), TRANSFORM, [], HIDE, NODATA) == raster()).all()


@pytest.mark.parametrize(
    ("transform", "footprint", "sentence"),
    [
        ((0.02, 0.0, -99.0, 0.0, 0.02, 39.0), FOOTPRINT, "the raster must be north-up"),
        ((0.02, 0.001, -99.0, 0.0, -0.02, 39.0), FOOTPRINT, "the raster must be north-up"),
        (TRANSFORM, shapely.Polygon(), "a footprint is empty"),
        (TRANSFORM, shapely.Point(float("nan"), 38), "a footprint is empty or has a coordinate that is no finite"),
        (TRANSFORM, shapely.LineString([(-179, -60), (0, 0), (179, 60)]), "a footprint is larger than any cell"),
    ],
)
def test_what_cannot_be_masked_is_refused(
    transform: tuple[float, float, float, float, float, float], footprint: shapely.Geometry, sentence: str
) -> None:
    with pytest.raises(PolicyRefused, match=f"^{sentence}"):
        masked_raster(raster(), transform, [footprint], HIDE, NODATA)


def test_a_type_without_room_for_nodata_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="no room for its nodata value"):
        masked_raster(raster().astype(np.uint8), TRANSFORM, [FOOTPRINT], HIDE, NODATA)
