"""An hour of radar without an echo is published: a raster without a value, no cells, and an Item that says so."""

import gzip
import io
import json
from datetime import date

import numpy as np
import pytest
import rasterio.shutil
from PIL import Image
from pystac.validation import validate_dict
from rasterio.io import MemoryFile

from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.operations.datasets.trial import Trial, run_trial
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.catalog.official_schemas import official_validator
from kfm_pipelines_tests.fixtures.rasters.invented import from_origin

KANSAS = (-102.2, 36.9, -94.5, 40.1)


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """What would be published of a composite in which no radar sees an echo, and none looks at the east."""
    values = np.full((32, 78), -99.0, np.float32)
    values[:, -5:] = -999.0
    shape = {"width": 78, "height": 32, "count": 1, "dtype": "float32", "crs": "EPSG:4326"}
    with MemoryFile() as plain, MemoryFile(ext=".grib2") as packed:
        with plain.open(driver="GTiff", transform=from_origin(-102.2, 40.1, 0.1), **shape) as out:
            out.write(values, 1)
        rasterio.shutil.copy(plain.name, packed.name, driver="GRIB")
        data = bytes(packed.read())
    name = "MRMS_MergedReflectivityQCComposite_00.50_20251204-030240.grib2.gz"
    folder = tmp_path_factory.mktemp("mrms") / "CONUS/MergedReflectivityQCComposite_00.50/20251204"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(gzip.compress(data))
    resources = shipped_path("resources")
    return run_trial(
        resources, load_datasets(resources)["noaa/mrms-reflectivity"], [folder / name], date(2026, 7, 1), {}
    )


def test_it_is_published_with_an_empty_table_and_no_findings(dry: Trial) -> None:
    assert dry.is_green
    assert dry.table is not None
    assert dry.table.num_rows == 0
    assert [finding for verdict in dry.verdicts for finding in verdict.findings] == []


def test_its_item_covers_the_raster_and_is_valid(dry: Trial) -> None:
    item = json.loads(dry.item)
    assert validate_dict(item, validator=official_validator())[1:] == item["stac_extensions"]
    assert item["bbox"] == pytest.approx(KANSAS, abs=0.11)  # the pixels around the state
    [band] = item["assets"]["raster"]["bands"]
    assert band["statistics"] == {"count": 0, "valid_percent": 0.0}


def test_its_raster_has_no_value_and_its_picture_is_clear(dry: Trial) -> None:
    files = {one.name: one.data for one in dry.attachments.files}
    with MemoryFile(files["raster"]) as file, file.open() as raster:
        assert raster.read(1, masked=True).count() == 0
    assert set(np.asarray(Image.open(io.BytesIO(files["thumbnail"])))[..., 3].flat) == {0}
