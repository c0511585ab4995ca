"""What is written is a Cloud-Optimised GeoTIFF by strict rules, with the same bytes everywhere."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
from numpy.testing import assert_array_equal
from pyproj import Geod
from rasterio.io import MemoryFile
from rio_cogeo.cogeo import cog_validate

from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.raster.cog import projection_of, read_cog, row_areas, write_cog
from kfm_pipelines.raster.grid import Pixels
from kfm_pipelines.settings import PACKAGE
from kfm_pipelines_tests.fixtures.rasters.invented import RAIN, pixels

BAND = Band.model_validate(RAIN)


def large() -> Pixels:
    values = np.random.default_rng(7).normal(10, 3, (2, 1300, 1700)).astype(np.float32)
    values[:, 400:700, 300:1200] = np.nan
    return pixels(values, pixel=0.002)


def two_bands() -> list[Band]:
    return [BAND, BAND.model_copy(update={"name": "snow"})]


def test_it_is_valid_by_strict_rules_and_has_overviews() -> None:
    data = write_cog(large(), two_bands(), -9999.0)
    with MemoryFile(data) as file:
        assert cog_validate(file.name, strict=True) == (True, [], [])
        with file.open() as dataset:
            assert dataset.overviews(1) == [2, 4]
            assert (dataset.nodata, dataset.dtypes) == (-9999.0, ("float32", "float32"))
            assert (dataset.descriptions, dataset.units) == (("rain", "snow"), ("mm", "mm"))


def test_pixels_come_back_as_they_were() -> None:
    made = large()
    found = read_cog(write_cog(made, two_bands(), -9999.0), "one")
    assert_array_equal(found.values, made.values)
    assert found.grid == made.grid


def test_the_file_states_no_time_and_no_machine() -> None:
    with MemoryFile(write_cog(pixels(), [BAND], -1.0)) as file, file.open() as dataset:
        assert set(dataset.tags()) <= {"AREA_OR_POINT", "OVR_RESAMPLING_ALG"}
        assert dataset.tags(1) == {}


PRINT_DIGEST = """
import hashlib
from kfm_pipelines_tests.raster.test_cog import large, two_bands
from kfm_pipelines.raster.cog import write_cog
print(hashlib.sha256(write_cog(large(), two_bands(), -9999.0)).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"GDAL_CACHEMAX": "1", "GDAL_NUM_THREADS": "1"},
        {"GDAL_CACHEMAX": "512", "GDAL_NUM_THREADS": "ALL_CPUS", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"},
    ],
)
def test_bytes_do_not_depend_on_cache_threads_or_place(environment: dict[str, str]) -> None:
    there = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST],
        env={**os.environ, **environment, "PYTHONPATH": str(PACKAGE.parent)},
        cwd=Path("/"),
        check=True,
        capture_output=True,
        text=True,
    )
    here = hashlib.sha256(write_cog(large(), two_bands(), -9999.0)).hexdigest()
    assert there.stdout.strip() == here


def test_the_area_of_a_pixel_is_that_on_the_ellipsoid() -> None:
    grid = pixels().grid
    west, _, _, north = grid.bounds
    # Geodesics bulge a little over the parallels, so the edges are divided.
    steps = np.linspace(0, 0.1, 200)
    ring = [
        *((west + step, north - 0.1) for step in steps),
        *((west + 0.1 - step, north) for step in steps),
    ]
    area, _ = Geod(ellps="WGS84").polygon_area_perimeter([one[0] for one in ring], [one[1] for one in ring])
    assert row_areas(grid)[0] == pytest.approx(area, rel=1e-6)
    assert row_areas(pixels(crs="EPSG:32614", pixel=30.0, west=600_000, north=4_300_000).grid)[0] == 900.0


def test_the_whole_earth_has_its_area() -> None:
    whole = pixels(np.zeros((180, 360)), pixel=1.0, west=-180.0, north=90.0).grid
    assert row_areas(whole).sum() * 360 == pytest.approx(510_065_621_724_000, rel=1e-9)


def test_the_projection_is_described() -> None:
    assert projection_of(pixels().grid) == {
        "proj:code": "EPSG:4326",
        "proj:shape": [3, 4],
        "proj:transform": [0.1, 0.0, -97.9, 0.0, -0.1, 39.0],
        "proj:bbox": pytest.approx([-97.9, 38.7, -97.5, 39.0]),
    }
    around = pixels(crs="+proj=aeqd +lat_0=37.76 +lon_0=-99.97 +datum=WGS84", pixel=1000.0, west=0.0, north=0.0).grid
    described = projection_of(around)
    assert described["proj:code"] is None
    assert rasterio.CRS.from_wkt(described["proj:wkt2"]) == around.crs
