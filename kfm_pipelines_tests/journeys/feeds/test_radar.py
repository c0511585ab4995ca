"""Radar composites of a provider: its topic sends S3's notifications, and each hour becomes a raster and H3 cells."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.io import MemoryFile
from rasterio.windows import from_bounds

from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.producer.samples.mrms import mrms_object
from kfm_pipelines.stores import Layout
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.journeys.feeds.test_scenes import fed_by_its_own_provider, item_of, verify_everything

pytestmark = pytest.mark.slow
MRMS = "noaa/mrms-reflectivity"
HOUR = datetime(2025, 12, 4, 3, tzinfo=UTC)
REAL = DATA / "MRMS_MergedReflectivityQCComposite_00.50_20220704-110040.grib2"
REAL_HOUR = datetime(2022, 7, 4, 11, tzinfo=UTC)


def feed(site: Site, hour: datetime, objects: dict[str, bytes]) -> tuple[Site, dict[str, Any]]:
    """Sends each notice twice, and returns the Item."""
    opened, provider = fed_by_its_own_provider(site, MRMS)
    provider.put(objects)
    for object_key, data in objects.items():
        bucket = opened.services.datasets[MRMS].input.bucket
        body = json.dumps(SAMPLES[MRMS].announcement(hour, bucket, {object_key: data}))
        provider.send(body)
        provider.send(body)
    assert opened.work()["published"] == 1
    return opened, item_of(opened, MRMS, f"noaa-mrms:kansas_statewide:6:{hour:%Y-%m-%dT%H}Z:v1-0-0")


def pixels_of(site: Site, item: dict[str, Any]) -> tuple[Any, Any]:
    folder = (site.data / Layout("noaa-mrms-reflectivity").item("any")).parent
    with rasterio.open((folder / Path(item["assets"]["raster"]["href"])).resolve()) as raster:
        return raster.read(1, masked=True), raster.bounds


def test_two_composites_of_an_hour_become_their_maximum(site: Site) -> None:
    name, first = mrms_object(HOUR)
    _, second = mrms_object(HOUR, seed=1)
    opened, item = feed(site, HOUR, {name: first, name.replace("0240.", "0440."): second})
    published, bounds = pixels_of(opened, item)
    read = []
    for data in (first, second):
        with MemoryFile(gzip.decompress(data)) as file, file.open() as raster:
            read.append(raster.read(1, window=from_bounds(*bounds, raster.transform)))
    expected = np.maximum(*read)
    np.testing.assert_allclose(published.compressed(), expected[~published.mask], atol=1e-4)
    assert (expected[~published.mask] > -90).all()
    assert set(item["assets"]) == {"data", "raster", "thumbnail", "provenance"}
    verify_everything(opened)


@needs_data
def test_a_real_composite_agrees_with_rasterio(site: Site) -> None:
    data = REAL.read_bytes()
    name = f"CONUS/MergedReflectivityQCComposite_00.50/20220704/{REAL.name}.gz"
    opened, item = feed(site, REAL_HOUR, {name: gzip.compress(data, 1)})
    published, bounds = pixels_of(opened, item)
    with MemoryFile(data) as file, file.open() as raster:
        expected = raster.read(1, window=from_bounds(*bounds, raster.transform).round_lengths().round_offsets())
    assert published.count() > 500
    np.testing.assert_allclose(published.compressed(), expected[~published.mask], atol=1e-4)
    assert (expected[~published.mask] > -90).all()
    verify_everything(opened)
