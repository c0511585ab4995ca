"""For every format: what is drafted from a file passes the check, and a trial of that file shows all gates green, says
that nothing is published yet because nobody has decided, and is green once somebody has."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import rasterio
import shapely

from kfm_pipelines.declarations.dataset import Dataset, load_dataset
from kfm_pipelines.operations.datasets.check import check_declarations
from kfm_pipelines.operations.datasets.new import draft_declaration
from kfm_pipelines.operations.datasets.new.draft import SampleObject
from kfm_pipelines.operations.datasets.new.inspectors import inspect_object
from kfm_pipelines.operations.datasets.trial import run_trial, write_trial
from kfm_pipelines_tests.fixtures.declarations import change, resources_in
from kfm_pipelines_tests.fixtures.features import as_geojson, as_geopackage, as_geoparquet, as_shapefile, plots
from kfm_pipelines_tests.fixtures.rasters.invented import geotiff, netcdf
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data

TODAY = date(2026, 7, 1)
CSV = b"""well,measured_at,lon,lat,depth_ft
A1,2026-06-30T12:00:00Z,-98.1,38.5,12.5
B2,2026-06-30T13:00:00Z,-97.9,38.6,7
"""
LINES = b'{"well": "A1", "depth": 12.5, "ok": true}\n{"well": "B2", "depth": 7.25, "ok": false}\n'
RAIN = np.arange(600, dtype=np.float32).reshape(20, 30) / 10
SQUARES = (shapely.box(-98.5, 38.25, -98.25, 38.5), shapely.box(-98.25, 38.25, -98.0, 38.5))


def raster_as(driver: str, folder: Path) -> bytes:
    """GDAL's own GRIB2 needs a file to write to."""
    plain, path = folder / "plain.tif", folder / "made.grib2"
    plain.write_bytes(geotiff(RAIN))
    rasterio.shutil.copy(plain, path, driver=driver)
    return path.read_bytes()


UTM = plots(*SQUARES, system="EPSG:26914")
FILES: dict[str, tuple[str, str, Callable[[Path], bytes]]] = {
    "rain_2026-06-30.tif": ("geotiff", "raster", lambda _: geotiff(RAIN)),
    "rain_2026-06-30.nc": ("netcdf", "raster", lambda folder: netcdf(folder, RAIN)),
    "rain_2026-06-30.grib2": ("grib2", "raster", lambda folder: raster_as("GRIB", folder)),
    "plots_2026-06-30.gpkg": ("geopackage", "vector", lambda _: as_geopackage(UTM)),
    "plots_2026-06-30.zip": ("shapefile", "vector", lambda _: as_shapefile(UTM)),
    "plots_2026-06-30.geojson": ("geojson", "vector", lambda _: as_geojson(plots(*SQUARES))),
    "plots_2026-06-30.parquet": ("parquet", "vector", lambda _: as_geoparquet(plots(*SQUARES))),
    "plots_utm_2026-06-30.parquet": ("parquet", "vector", lambda _: as_geoparquet(UTM)),
    "wells_2026-06-30.csv": ("csv", "table", lambda _: CSV),
    "wells_2026-06-30.ndjson": ("ndjson", "table", lambda _: LINES),
}
REAL: dict[str, tuple[str, str]] = {
    "nexrad/KDDC_N0Q_20200817_0501.nids": ("nexrad-level3", "raster"),
    "netcdf/GFS_test.nc": ("netcdf", "raster"),
    "kansas_aiannh.geojson": ("geojson", "vector"),
    "MRMS_MergedReflectivityQCComposite_00.50_20220704-110040.grib2": ("grib2", "raster"),
}


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return resources_in(tmp_path_factory.mktemp("round-trip"))


def draft(resources: Path, name: str, data: bytes) -> Dataset:
    """Writes both files as the command does, and checks them."""
    drafted = draft_declaration("new/one", SampleObject(name, len(data)), inspect_object(data, name), resources, TODAY)
    path = resources / "datasets/new-one.yaml"
    path.write_text(drafted.declaration)
    (resources / "policies/new-one.yaml").write_text(drafted.policy)
    result = check_declarations(resources, [path])
    assert result.ok, result.problems
    assert {problem.field for problem in result.problems} == {"licence.id", "policy"}
    return load_dataset(path)


def assert_round_trip(resources: Path, path: Path, known: str, processor: str) -> None:
    dataset = draft(resources, path.name, path.read_bytes())
    assert (dataset.input.format, dataset.processor) == (known, processor)
    undecided = run_trial(resources, dataset, [path], TODAY, {})
    assert [(verdict.gate, verdict.findings) for verdict in undecided.verdicts] == [("schema", ()), ("qa", ())]
    [refusal] = undecided.refusals
    assert refusal.startswith("policy new-one@1 is undecided: nothing is published under it until somebody")
    assert write_trial(undecided, path.parent / "out") == []

    change(resources / "policies/new-one.yaml", sensitivity="open", reason="No place can be harmed")
    decided = run_trial(resources, dataset, [path], TODAY, {})
    assert decided.is_green, (decided.refusals, decided.verdicts)
    assert {"data.parquet", "item.json"} <= {one.name for one in write_trial(decided, path.parent / "out")}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format_is_declared_and_would_be_published(resources: Path, tmp_path: Path, name: str) -> None:
    known, processor, make = FILES[name]
    path = tmp_path / name
    path.write_bytes(make(tmp_path))
    assert_round_trip(resources, path, known, processor)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_declared_and_would_be_published(resources: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / Path(name).name
    path.write_bytes((DATA / name).read_bytes())
    assert_round_trip(resources, path, *REAL[name])
