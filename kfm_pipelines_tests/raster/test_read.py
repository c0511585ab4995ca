"""Rasters are read as declared, only where the area is, and refused with one clear sentence if they cannot be."""

import gzip
import resource
import socket
from contextlib import ExitStack
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely
from numpy.testing import assert_array_equal
from pyproj import Transformer
from rasterio.io import MemoryFile

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.open import open_memory
from kfm_pipelines.raster.read import SourceRaster, read_raster
from kfm_pipelines_tests.fixtures.rasters.invented import (
    NORTH,
    PIXEL,
    RAIN,
    VALUES,
    WEST,
    area,
    geotiff,
    netcdf,
    overview_in,
    raster_dataset,
    sparse_geotiff,
    vrt_of,
)

NAN = np.nan
GRID = {
    "crs": "EPSG:4326", "west": WEST, "north": NORTH, "pixel_width": PIXEL, "pixel_height": PIXEL,
    "columns": 4, "rows": 3,
}  # fmt: skip


def read(data: bytes, dataset: Dataset | None = None, within: Area | None = None) -> SourceRaster:
    dataset = dataset or raster_dataset()
    assert dataset.raster is not None
    return read_raster(data, "one.tif", dataset.raster, dataset.input, within or area())


def values(data: bytes, within: Area | None = None, **raster: Any) -> np.ndarray[Any, Any]:
    return read(data, raster_dataset(**raster), within).clipped.values


def reason(data: bytes, dataset: Dataset | None = None, within: Area | None = None) -> str:
    with pytest.raises(InputUnreadable) as refused:
        read(data, dataset, within)
    return str(refused.value)


def test_values_are_those_of_the_file_as_32_bit_floats() -> None:
    found = values(geotiff(VALUES.astype(np.float64)))
    assert found.dtype == np.float32
    assert_array_equal(found[0], VALUES)


def test_nodata_and_sentinels_are_missing_and_the_rest_is_scaled() -> None:
    stored = np.array([[0, 1, 2, 65535]], np.uint16)
    found = values(geotiff(stored, nodata=0), bands=[RAIN | {"sentinels": [65535], "scale": 0.5, "offset": -10}])
    assert_array_equal(found[0], [[NAN, -9.5, -9.0, NAN]])


def test_a_sentinel_is_compared_in_the_type_of_the_file() -> None:
    stored = np.array([[-99.9, 1.0]], np.float32)
    assert_array_equal(values(geotiff(stored), bands=[RAIN | {"sentinels": [-99.9]}])[0], [[NAN, 1.0]])


def test_pixels_that_an_internal_mask_hides_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "masked.tif"
    path.write_bytes(geotiff(VALUES))
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as file:
        file.write_mask(VALUES > 3)
    assert_array_equal(np.isnan(values(path.read_bytes())[0]), VALUES <= 3)


def test_bands_are_chosen_by_number_or_name() -> None:
    data = geotiff(np.stack([VALUES, VALUES + 100]), descriptions=("rain", "snow"))
    bands = [RAIN | {"name": "a", "source": 2}, RAIN | {"name": "b", "source": "rain"}]
    assert_array_equal(values(data, bands=bands), np.stack([VALUES + 100, VALUES]))
    assert "has no band 3; it has 2" in reason(data, raster_dataset(bands=[RAIN | {"source": 3}]))
    assert "has no band called 'hail'" in reason(data, raster_dataset(bands=[RAIN | {"source": "hail"}]))


def test_only_the_window_of_the_area_is_kept_and_centres_outside_it_are_missing() -> None:
    slanted = Area("slanted", shapely.Polygon([(-97.9, 38.9), (-97.7, 38.9), (-97.7, 38.7), (-97.9, 38.7)]))
    found = read(geotiff(), within=slanted).clipped
    assert found.grid.bounds == pytest.approx((-97.9, 38.7, -97.7, 38.9))
    assert_array_equal(found.values[0], VALUES[1:, :2])
    triangle = Area("triangle", shapely.Polygon([(-97.9, 39.0), (-97.5, 39.0), (-97.9, 38.7)]))
    expected = [[0, 1, 2, NAN], [4, 5, NAN, NAN], [8, NAN, NAN, NAN]]
    assert_array_equal(read(geotiff(), within=triangle).clipped.values[0], expected)


def test_an_area_is_projected_into_the_system_of_the_raster() -> None:
    """The centres that are kept are those that another library finds within the area."""
    stored = np.arange(400, dtype=np.float32).reshape(20, 20)
    data = geotiff(stored, crs="EPSG:32614", west=600_000, north=4_300_000, pixel=1000)
    near = area(-97.80, 38.70, -97.70, 38.80)
    found = read(data, within=near).clipped
    rows, columns = np.indices(found.values[0].shape)
    west, _, _, top = found.grid.bounds
    east, north = west + (columns + 0.5) * 1000, top - (rows + 0.5) * 1000
    longitude, latitude = Transformer.from_crs(32614, 4326, always_xy=True).transform(east, north)
    inside = (longitude > -97.80) & (longitude < -97.70) & (latitude > 38.70) & (latitude < 38.80)
    assert inside.any()
    assert_array_equal(~np.isnan(found.values[0]), inside)


def test_longitudes_from_0_to_360_are_those_of_the_area() -> None:
    found = read(geotiff(west=WEST + 360), within=area(-98, 38, -97, 39.5)).clipped
    assert found.grid.bounds[0] == pytest.approx(WEST)
    assert_array_equal(found.values[0], VALUES)


def test_a_declared_grid_is_required_and_replaces_a_rounded_one() -> None:
    dataset = raster_dataset(grid=GRID)
    found = read(geotiff(west=WEST + 2e-7), dataset)
    assert found.whole.transform.c == WEST
    assert "has the grid 4 × 3 pixels of 0.1 × 0.1 from -97.85" in reason(geotiff(west=-97.85), dataset)
    assert "has the grid 4 × 2 pixels" in reason(geotiff(VALUES[:2]), dataset)
    other = geotiff(crs="EPSG:32614", west=600_000, north=4_300_000, pixel=1000)
    assert "is in EPSG:32614, and raster.grid declares EPSG:4326" in reason(other, dataset)


def test_what_has_no_place_is_refused() -> None:
    assert "has no reference system" in reason(geotiff(crs=None))
    assert "has an origin or a pixel size that is not a number" in reason(geotiff(west=NAN))
    assert "lies outside the area box" in reason(geotiff(), within=area(10, 10, 20, 20))
    utm = geotiff(crs="EPSG:32614", west=600_000, north=4_300_000, pixel=1000)
    assert "lies outside the area box" in reason(utm, within=area(10, 10, 20, 20))


def test_what_is_larger_than_the_limits_is_refused_before_it_is_allocated() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    huge = sparse_geotiff(70_000, 70_000, np.uint8, 70_000)
    assert len(huge) < 10_000
    assert reason(huge) == "one.tif has 4900000000 pixels; input.limits.pixels allows 200000000"
    bomb = sparse_geotiff(12_000, 12_000, np.float64, 12_000)
    assert len(bomb) < 10_000
    assert "one.tif unpacks to 1152000000 bytes; input.limits.unpacked_bytes" in reason(bomb)
    many = raster_dataset(bands=[RAIN | {"name": f"b{n}"} for n in range(3)], limits={"pixels": 30})
    assert reason(geotiff(), many) == "one.tif has 36 pixels; input.limits.pixels allows 30"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize("target", ["/etc/passwd", "/vsicurl/https://example.com/a.tif"])
def test_a_raster_that_refers_to_others_is_not_opened(target: str) -> None:
    expected = "one.tif is not readable as GeoTIFF: it is another format, cut or bad"
    assert reason(vrt_of(target)) == expected


def test_a_file_that_is_cut_is_refused_even_where_the_area_is_whole() -> None:
    data = geotiff(np.random.default_rng(1).random((2048, 2048), np.float32), pixel=0.001, tiled=True)
    north_west = area(-97.9, 38.9, -97.8, 39.0)
    assert read(data, within=north_west).clipped.values.shape == (1, 100, 100)
    assert "is cut; a block lies beyond its end" in reason(data[: len(data) * 3 // 4], within=north_west)
    assert "not readable as GeoTIFF" in reason(data[:100])
    assert reason(b"") == "one.tif is empty"


def test_files_beside_a_raster_are_not_looked_for() -> None:
    """An overview, a mask or statistics of another file never come into the values."""
    beside = {
        ".ovr": geotiff(VALUES[:1, :2] + 1000, pixel=2 * PIXEL),
        ".msk": geotiff(np.zeros((3, 4), np.uint8)),
        ".aux.xml": b"<PAMDataset><PAMRasterBand band='1'><NoDataValue>5</NoDataValue></PAMRasterBand></PAMDataset>",
    }
    with open_memory(geotiff(), "one.tif", "GTiff") as file, ExitStack() as stack:
        folder, name = PurePath(file.name).parent.name, PurePath(file.name).name
        for end, data in beside.items():
            stack.enter_context(MemoryFile(data, dirname=folder, filename=f"{name}{end}"))
        dataset = stack.enter_context(file.open(driver="GTiff"))
        assert (dataset.files, dataset.overviews(1), dataset.nodata) == ([file.name], [], None)
        assert_array_equal(dataset.read(1, masked=True), VALUES)


def test_a_raster_whose_overviews_are_elsewhere_is_refused(tmp_path: Path) -> None:
    data = overview_in(tmp_path / "overview.tif", geotiff())
    (tmp_path / "overview.tif").write_bytes(geotiff(VALUES[:1, :2] + 1000, pixel=2 * PIXEL))
    assert reason(data) == "one.tif has its overviews in another file; put them into the file itself"


@pytest.mark.parametrize("how", ["vsicurl", "vsicurl_streaming"])
def test_nothing_is_fetched_from_the_network(how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"/{how}/http://127.0.0.1:{server.getsockname()[1]}/overview.tif"
        with (
            rasterio.Env(GDAL_HTTP_TIMEOUT=1),
            open_memory(overview_in(address, geotiff()), "one.tif", "GTiff") as file,
            file.open(driver="GTiff") as dataset,
        ):
            assert dataset.overviews(1) == []
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()


def test_a_measurement_that_would_be_nodata_is_refused() -> None:
    assert "has values of 5, which raster.nodata means" in reason(geotiff(), raster_dataset(nodata=5))


@pytest.mark.parametrize("kind", ["NC", "NC4"])
def test_netcdf_is_unpacked_by_its_own_scale(tmp_path: Path, kind: str) -> None:
    stored = np.array([[1, 2, 3, -32768]], np.int16)
    data = netcdf(tmp_path, stored, scale=0.5, nodata=-32768, kind=kind)
    assert_array_equal(values(data, format="netcdf")[0], [[0.5, 1.0, 1.5, NAN]])


def test_netcdf_that_unpacks_to_more_than_a_float_holds_is_refused(tmp_path: Path) -> None:
    data = netcdf(tmp_path, np.array([[1, 32767]], np.int16), scale=1e35, nodata=-1)
    expected = "one.tif unpacks to values beyond 32-bit floats; its scale or offset is wrong"
    assert reason(data, raster_dataset(format="netcdf")) == expected
    nothing = netcdf(tmp_path, np.array([[1, 2]], np.int16), scale=NAN, nodata=-1)
    assert "a scale or an offset that is not a number" in reason(nothing, raster_dataset(format="netcdf"))


def test_a_variable_of_netcdf_is_named(tmp_path: Path) -> None:
    data = netcdf(tmp_path)
    bands = [RAIN | {"source": "Band2"}]
    assert "has no variable 'Band2' on a grid" in reason(data, raster_dataset(format="netcdf", bands=bands))
    assert_array_equal(values(data, format="netcdf", bands=[RAIN | {"source": "Band1"}])[0], VALUES)


def test_gzip_is_unpacked_within_the_limit() -> None:
    packed = gzip.compress(geotiff())
    assert_array_equal(values(packed)[0], VALUES)
    assert reason(packed[:-9]) == "one.tif is not readable as gzip: it is cut"
    assert reason(packed[:20] + bytes(100)) == "one.tif is not readable as gzip: it is damaged"
    bomb = gzip.compress(bytes(50_000_000))
    limited = raster_dataset(limits={"unpacked_bytes": 1_000_000})
    assert reason(bomb, limited) == "one.tif unpacks to 1000001 bytes; input.limits.unpacked_bytes allows 1000000"


def test_a_block_with_all_bands_counts_with_all_bands() -> None:
    many = np.zeros((40, 64, 64), np.float32)
    limited = raster_dataset(limits={"unpacked_bytes": 64 * 64 * 4 * 10})
    tiles: dict[str, Any] = {"tiled": True, "blockxsize": 64, "blockysize": 64}
    assert read(geotiff(many, interleave="band", **tiles), limited).clipped.values.shape == (1, 64, 64)
    assert "unpacks to 655360 bytes" in reason(geotiff(many, interleave="pixel", **tiles), limited)
