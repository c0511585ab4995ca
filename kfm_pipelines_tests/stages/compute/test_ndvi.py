"""The vegetation index of a scene is what GDAL and numpy make of its bands, without clouds, inside the area."""

import dataclasses
import io

import numpy as np
import pytest
import rasterio
import shapely
from numpy.typing import NDArray
from rasterio.features import geometry_mask
from rasterio.io import MemoryFile
from rasterio.warp import transform_geom

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.producer.samples.landsat import CLEAR, CLOUD, FILL, landsat_product
from kfm_pipelines.stages.compute.ndvi import is_clear
from kfm_pipelines.stages.compute.process import process
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.scenes import START, kansas, sample_members, sample_sources

NAME = "usgs/landsat-ndvi"
WEST_HALF = Area("west_half", shapely.box(-97, 38, -96.6, 39))


def computed(objects: list[SourceObject], area: Area | None = None) -> Computed:
    return process(declared()[NAME], objects, lambda: area or kansas())


def pixels(made: Computed) -> NDArray[np.float64]:
    [raster] = [one.data for one in made.attachments.files if one.name == "raster"]
    with MemoryFile(raster) as file, file.open() as opened:
        values: NDArray[np.float64] = opened.read(1, masked=True).astype(float).filled(np.nan)
    return values


def band(end: str) -> NDArray[np.float64]:
    data = sample_members(NAME)[f"{landsat_product(START)}_{end}.TIF"]
    with rasterio.open(io.BytesIO(data)) as opened:
        values: NDArray[np.float64] = opened.read(1).astype(float)
    return values


def expected() -> NDArray[np.float64]:
    red, infrared = (band(end) * 0.0000275 - 0.2 for end in ("SR_B4", "SR_B5"))
    return np.where(band("QA_PIXEL") == CLEAR, (infrared - red) / (infrared + red), np.nan)


def test_the_index_agrees_with_an_independent_reading() -> None:
    found = pixels(computed(sample_sources(NAME)))
    assert np.isfinite(found).mean() == pytest.approx(np.isfinite(expected()).mean())
    np.testing.assert_allclose(found, expected(), atol=2e-6)
    assert -1 <= np.nanmin(found) <= np.nanmax(found) <= 1


def test_the_index_ends_where_the_area_ends() -> None:
    made = computed(sample_sources(NAME), WEST_HALF)
    [raster] = [one.data for one in made.attachments.files if one.name == "raster"]
    with MemoryFile(raster) as file, file.open() as opened:
        divided = shapely.geometry.mapping(shapely.segmentize(WEST_HALF.shape, 0.01))  # edges do not stay straight
        inside = transform_geom("EPSG:4326", opened.crs, divided)
        outside = geometry_mask([inside], opened.shape, opened.transform)
    assert np.isnan(pixels(made)[outside]).all()
    assert 0 < np.isfinite(pixels(made)).sum() < np.isfinite(expected()).sum()


def test_cells_count_every_clear_pixel_once() -> None:
    made = computed(sample_sources(NAME))
    clear = np.isfinite(expected())
    assert sum(made.table.column("ndvi_count").to_pylist()) == pytest.approx(clear.sum(), rel=1e-3)
    assert sum(made.table.column("ndvi_sum").to_pylist()) == pytest.approx(np.nansum(expected()), rel=1e-3)


def test_the_same_scene_gives_the_same_bytes() -> None:
    assert computed(sample_sources(NAME)) == computed(sample_sources(NAME)[::-1])


@pytest.mark.parametrize(("bits", "clear"), [(CLEAR, True), (CLOUD, False), (FILL, False), (21824 | 1 << 4, False)])
def test_only_clear_pixels_count(bits: int, clear: bool) -> None:
    assert is_clear(np.array([bits, np.nan], np.float32)).tolist() == [clear, False]


def test_a_scene_without_its_bands_is_refused() -> None:
    objects = [one for one in sample_sources(NAME) if not one.asset_uri.endswith("SR_B5.TIF")]
    with pytest.raises(InputUnreadable, match=r"_SR_B5\.TIF was not fetched"):
        computed(objects)


def test_bands_on_different_grids_are_refused() -> None:
    objects = sample_sources(NAME)
    [infrared] = [one for one in objects if one.asset_uri.endswith("SR_B5.TIF")]
    with rasterio.open(io.BytesIO(infrared.data)) as opened, MemoryFile() as file:
        profile = {**opened.profile, "width": 128, "height": 128, "blockxsize": 128, "blockysize": 128}
        with file.open(**profile) as target:
            target.write(opened.read(1)[:128, :128], 1)
        smaller = dataclasses.replace(infrared, data=bytes(file.read()))
    with pytest.raises(InputUnreadable, match=r"_SR_B5\.TIF has another grid than the red band"):
        computed([one if one is not infrared else smaller for one in objects])


def test_a_cut_band_is_refused() -> None:
    objects = [
        dataclasses.replace(one, data=one.data[:5000]) if one.asset_uri.endswith("SR_B4.TIF") else one
        for one in sample_sources(NAME)
    ]
    with pytest.raises(InputUnreadable, match=r"_SR_B4\.TIF"):
        computed(objects)


REAL = DATA / "landsat" / "LC08_L2SP_017036_20130419_20200913_02_T2"
GEORGIA = Area("georgia", shapely.box(-87, 31, -79, 38))


def real_objects() -> list[SourceObject]:
    root = f"s3://usgs-landsat/collection02/level-2/standard/oli-tirs/2013/017/036/{REAL.name}/"
    return [SourceObject(f"{root}{one.name}", one.read_bytes()) for one in REAL.iterdir() if one.suffix != ".xml"]


def cleared(quality: SourceObject) -> SourceObject:
    """The same scene on a day without clouds."""
    with rasterio.open(io.BytesIO(quality.data)) as opened, MemoryFile() as file:
        with file.open(**opened.profile) as target:
            target.write(np.full(opened.shape, CLEAR, np.uint16), 1)
        return dataclasses.replace(quality, data=bytes(file.read()))


@needs_data
def test_a_real_scene_under_clouds_has_a_raster_without_a_value_and_no_cells() -> None:
    made = computed(real_objects(), GEORGIA)
    assert made.table.num_rows == 0
    assert not np.isfinite(pixels(made)).any()


@pytest.mark.slow
@needs_data
def test_the_index_of_real_bands_agrees_with_an_independent_reading() -> None:
    made = computed([cleared(one) if "QA_PIXEL" in one.asset_uri else one for one in real_objects()], GEORGIA)
    stored = []
    for end in ("SR_B4", "SR_B5"):
        with rasterio.open(REAL / f"{REAL.name}_{end}.TIF") as opened:
            stored.append(opened.read(1).astype(float))
    red, infrared = (one * 0.0000275 - 0.2 for one in stored)
    measured = (stored[0] > 0) & (stored[1] > 0) & (red >= 0) & (infrared >= 0)
    expected = np.where(measured, (infrared - red) / (infrared + red), np.nan)
    assert np.isfinite(expected).sum() > 100_000
    np.testing.assert_allclose(pixels(made), expected, atol=2e-6)
    assert sum(made.table.column("ndvi_sum").to_pylist()) == pytest.approx(np.nansum(expected), rel=1e-3)
