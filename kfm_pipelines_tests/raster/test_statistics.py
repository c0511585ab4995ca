"""Statistics of a band are those of its values, and the resolution is in metres."""

import numpy as np
import pytest

from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.raster.statistics import band_fields, spatial_resolution, statistics_of
from kfm_pipelines_tests.fixtures.rasters.invented import RAIN, pixels


def test_missing_values_do_not_count() -> None:
    made = pixels(np.array([[1.0, 2.0, 3.0, np.nan]]))
    [found] = statistics_of(made)
    assert (found.valid_pixels, found.nodata_pixels, found.min, found.max, found.mean) == (3, 1, 1.0, 3.0, 2.0)
    assert found.stddev == pytest.approx(0.8164966)
    [described] = band_fields([Band.model_validate(RAIN)], -9999.0, made)
    assert described["statistics"]["valid_percent"] == 75.0
    assert (described["unit"], described["nodata"], described["data_type"]) == ("mm", -9999.0, "float32")


def test_a_band_without_values_has_no_bounds() -> None:
    made = pixels(np.full((2, 2), np.nan))
    [found] = statistics_of(made)
    assert (found.valid_pixels, found.min, found.mean) == (0, None, None)
    [described] = band_fields([Band.model_validate(RAIN)], -9999.0, made)
    assert described["statistics"] == {"count": 0, "valid_percent": 0.0}


def test_the_resolution_is_in_metres() -> None:
    assert spatial_resolution(pixels(crs="EPSG:32614", pixel=30.0, west=6e5, north=4.3e6).grid) == 30.0
    assert spatial_resolution(pixels(crs="EPSG:6467", pixel=100.0, west=1e6, north=2e6).grid) == pytest.approx(30.48006)
    assert spatial_resolution(pixels().grid) == pytest.approx(9809, rel=0.01)
