"""Objects of a key become one raster with its picture and its table, the same in any order; real files agree with what
rasterio reads of them."""

import itertools
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import rasterio
import shapely
from PIL import Image
from rasterio.io import MemoryFile
from rasterio.mask import mask
from rio_cogeo.cogeo import cog_validate

from kfm_pipelines.declarations.areas import Area, load_area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.cog import read_cog
from kfm_pipelines.raster.open import box_of_raster
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.compute.assemble import assemble
from kfm_pipelines.stages.compute.process import process
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines_tests.fixtures.rasters.invented import NORTH, VALUES, WEST, area, geotiff, raster_dataset
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data

NAN = np.nan
MRMS = DATA / "MRMS_MergedReflectivityQCComposite_00.50_20220704-110040.grib2"
REFLECTIVITY = {"name": "reflectivity", "unit": "dBZ", "description": "Composite", "sentinels": [-99, -999]}
MRMS_GRID = {
    "crs": "EPSG:4326", "west": -130.0, "north": 55.0, "pixel_width": 0.01, "pixel_height": 0.01,
    "columns": 7000, "rows": 3500,
}  # fmt: skip


def run(dataset: Dataset, *objects: bytes, within: Area | None = None) -> Computed:
    named = [SourceObject(f"s3://bucket/{number}.tif", data) for number, data in enumerate(objects)]
    return process(dataset, named, lambda: within or area())


def kansas() -> Area:
    return load_area(shipped_path("resources"), "kansas_statewide")


def published_values(computed: Computed) -> np.ndarray[Any, Any]:
    return read_cog(computed.attachments.files[0].data, "raster").values


def as_bytes(computed: Computed) -> tuple[Sequence[bytes], Any]:
    return [one.data for one in computed.attachments.files], computed.table


def test_a_raster_has_a_file_a_picture_and_statistics() -> None:
    dataset = raster_dataset()
    computed = run(dataset, geotiff())
    raster, picture = computed.attachments.files
    assert (raster.name, raster.file_name, raster.roles) == ("raster", "raster.tif", ("data",))
    assert raster.bbox == box_of_raster(raster.data, "raster") == pytest.approx((-97.9, 38.7, -97.5, 39.0))
    assert (picture.name, picture.media_type, picture.roles) == ("thumbnail", "image/png", ("thumbnail",))
    assert Image.open(BytesIO(picture.data)).size == (4, 3)
    assert computed.table.schema == declared_schema(dataset.table)
    [row] = computed.table.to_pylist()
    assert (row["band"], row["valid_pixels"], row["min"], row["max"], row["mean"]) == ("rain", 12, 0.0, 11.0, 5.5)


def test_with_a_resolution_there_is_a_table_of_cells() -> None:
    dataset = raster_dataset(h3_res="6")
    table = run(dataset, geotiff()).table
    assert table.schema == declared_schema(dataset.table)
    assert table.column("h3_cell").to_pylist() == sorted(table.column("h3_cell").to_pylist())
    assert pc.sum(table.column("rain_sum")).as_py() == pytest.approx(VALUES.sum(), rel=1e-6)


def test_without_objects_there_is_an_empty_table() -> None:
    computed = process(raster_dataset(h3_res="6"), [], area)
    assert (computed.table.num_rows, computed.attachments.files) == (0, ())


def test_the_first_of_several_is_the_first_by_name_in_whatever_order_they_come() -> None:
    some, other = VALUES.copy(), VALUES + 100
    some[0] = NAN
    objects = [SourceObject("s3://b/a.tif", geotiff(some)), SourceObject("s3://b/b.tif", geotiff(other))]
    dataset = raster_dataset(composite="first", h3_res="7")
    one, two = (process(dataset, order, area) for order in (objects, objects[::-1]))
    assert as_bytes(one) == as_bytes(two)
    np.testing.assert_array_equal(published_values(one)[0], np.where(np.isnan(some), other, some))


def test_several_objects_need_a_declared_composite_and_pixels_that_coincide() -> None:
    with pytest.raises(
        InputUnreadable, match=r"0\.tif and s3://bucket/1\.tif are in one key; declare raster\.composite"
    ):
        run(raster_dataset(), geotiff(), geotiff())
    with pytest.raises(InputUnreadable, match=r"1\.tif has another grid than s3://bucket/0\.tif"):
        run(raster_dataset(composite="max"), geotiff(), geotiff(west=-97.85))


def cut_into_tiles(whole: np.ndarray[Any, Any], columns: int, rows: int, crs: str, pixel: float) -> list[bytes]:
    """Tiles of a raster near Salina that overlap by two pixels, row by row."""
    west, north = (WEST, NORTH) if crs == "EPSG:4326" else (600_000.0, 4_320_000.0)
    tiles = []
    for top, bottom in itertools.pairwise(np.linspace(0, whole.shape[0], rows + 1, dtype=int)):
        for left, right in itertools.pairwise(np.linspace(0, whole.shape[1], columns + 1, dtype=int)):
            part = whole[max(0, top - 2) : bottom, max(0, left - 2) : right]
            place = {"west": west + max(0, left - 2) * pixel, "north": north - max(0, top - 2) * pixel}
            tiles.append(geotiff(part, crs=crs, pixel=pixel, **place))
    return tiles


@pytest.mark.slow
@pytest.mark.parametrize(("crs", "pixel"), [("EPSG:4326", 0.01), ("EPSG:32614", 1000.0)])
@pytest.mark.parametrize("composite", ["first", "mean", "max"])
def test_tiles_are_published_as_the_file_they_were_cut_from(crs: str, pixel: float, composite: str) -> None:
    values = np.random.default_rng(7).normal(20, 5, (40, 60)).astype(np.float32)
    values[5:8, 10:50] = NAN
    near = Area("triangle", shapely.Polygon([(-97.95, 39.01), (-97.3, 38.95), (-97.6, 38.62)]))
    dataset = raster_dataset(composite=composite, h3_res="6")
    whole = run(dataset, *cut_into_tiles(values, 1, 1, crs, pixel), within=near)
    tiles = [
        SourceObject(f"s3://bucket/{number}.tif", data)
        for number, data in enumerate(cut_into_tiles(values, 2, 2, crs, pixel))
    ]
    for arrived in (tiles, tiles[::-1]):
        assert as_bytes(process(dataset, arrived, lambda: near)) == as_bytes(whole)


def test_the_window_of_a_mosaic_is_refused_before_it_is_allocated() -> None:
    """Two small tiles at either end of the state: between them are a million million pixels."""
    dataset = raster_dataset(composite="first")
    near, far = (geotiff(VALUES, pixel=1e-6, west=west, north=north) for west, north in ((-98, 39), (-97, 38)))
    with pytest.raises(InputUnreadable, match=r"all 2 objects of the key has \d{12,} pixels; input\.limits\.pixels"):
        run(dataset, near, far)


def test_a_tile_outside_the_area_and_a_composite_that_is_nodata_are_refused() -> None:
    dataset = raster_dataset(composite="mean")
    with pytest.raises(InputUnreadable, match=r"1\.tif lies outside the area box"):
        run(dataset, geotiff(), geotiff(west=-97.5), within=area(-98, 38, -97.5, 40))
    low, high = (geotiff(np.full((3, 4), value, np.float32)) for value in (-9998, -10000))
    with pytest.raises(InputUnreadable, match=r"all 2 objects of the key has values of -9999, which raster\.nodata"):
        run(dataset, low, high)


def test_what_was_read_back_assembles_to_the_same_bytes() -> None:
    """A mask relies on this: it changes pixels of the file and assembles again."""
    dataset = raster_dataset(h3_res="6")
    computed = run(dataset, geotiff())
    again = assemble(read_cog(computed.attachments.files[0].data, "raster"), dataset)
    assert as_bytes(again) == as_bytes(computed)


@needs_data
@pytest.mark.slow
def test_mrms_has_the_values_that_rasterio_reads() -> None:
    dataset = raster_dataset(format="grib2", h3_res="6", bands=[REFLECTIVITY], grid=MRMS_GRID)
    computed = run(dataset, MRMS.read_bytes(), within=kansas())
    with rasterio.open(MRMS) as source:
        expected, _ = mask(source, [kansas().shape.__geo_interface__], crop=True, nodata=-999, filled=True)
    expected = np.where(np.isin(expected, [-99, -999]), NAN, expected).astype(np.float32)
    found = published_values(computed)
    assert np.nanmin(found) > -99
    np.testing.assert_array_equal(found[~np.isnan(found)], expected[~np.isnan(expected)])
    assert pc.sum(computed.table.column("reflectivity_sum")).as_py() == pytest.approx(np.nansum(expected), rel=1e-6)
    with MemoryFile(computed.attachments.files[0].data) as file:
        assert cog_validate(file.name, strict=True) == (True, [], [])


@needs_data
def test_a_grib_that_is_cut_is_refused() -> None:
    data = MRMS.read_bytes()
    with pytest.raises(InputUnreadable, match="not readable as GRIB2: message 1 is cut or damaged"):
        run(raster_dataset(format="grib2"), data[: len(data) // 2], within=kansas())


@needs_data
def test_variables_and_levels_of_netcdf_are_those_that_rasterio_reads() -> None:
    path = DATA / "netcdf" / "GFS_test.nc"
    bands: list[dict[str, Any]] = [
        {"name": "pressure", "source": "Pressure_reduced_to_MSL_msl", "unit": "Pa", "description": "At sea level"},
        {"name": "air", "source": "Temperature_isobaric", "step": 3, "unit": "K", "description": "In a level"},
    ]
    found = published_values(run(raster_dataset(format="netcdf", bands=bands), path.read_bytes(), within=kansas()))
    for number, (name, step) in enumerate((("Pressure_reduced_to_MSL_msl", 1), ("Temperature_isobaric", 3))):
        with rasterio.open(f"netcdf:{path}:{name}") as source:
            whole = source.read(step)[25:29, 48:56]  # from 40.5 north and 102.5 west
        there = ~np.isnan(found[number])
        assert there.sum() > 25
        np.testing.assert_array_equal(found[number][there], whole[there])
    without = [bands[1] | {"step": None}]
    with pytest.raises(InputUnreadable, match=r"has 26 steps of 'Temperature_isobaric'; declare bands\.step of air"):
        run(raster_dataset(format="netcdf", bands=without), path.read_bytes(), within=kansas())


@needs_data
def test_a_landsat_band_stays_in_its_own_system() -> None:
    path: Path = next((DATA / "landsat").rglob("*_SR_B4.TIF"))
    band = {"name": "red", "unit": "1", "description": "Red", "scale": 2.75e-05, "offset": -0.2}
    computed = run(raster_dataset(h3_res="6", bands=[band]), path.read_bytes())
    with rasterio.open(path) as source:
        stored = source.read(1).astype(np.float64)
    expected = np.where(stored == 0, NAN, stored * 2.75e-05 - 0.2).astype(np.float32)
    np.testing.assert_array_equal(published_values(computed)[0], expected)
    assert computed.attachments.files[0].properties["proj:code"] == "EPSG:32617"
    assert pc.sum(computed.table.column("red_sum")).as_py() == pytest.approx(np.nansum(expected), rel=1e-6)
    with pytest.raises(InputUnreadable, match="lies outside the area kansas_statewide"):
        run(raster_dataset(bands=[band]), path.read_bytes(), within=kansas())
