"""Radar composites and scans of a provider: its topic sends S3's notifications, and each hour becomes a raster and H3
cells."""

import gzip
import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio
from rasterio.features import geometry_mask
from rasterio.io import MemoryFile
from rasterio.windows import from_bounds
from rio_cogeo.cogeo import cog_validate

from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.producer.samples.mrms import mrms_object
from kfm_pipelines.producer.samples.nexrad import nexrad_object
from kfm_pipelines_tests.fixtures.rasters.radar_gates import gates_on_pixels
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.scenes import kansas
from kfm_pipelines_tests.fixtures.sites.own_datasets import asset_of, item_of
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.journeys.feeds.test_scenes import fed_by_its_own_provider, verify_everything

pytestmark = pytest.mark.slow
MRMS, NEXRAD = "noaa/mrms-reflectivity", "noaa/nexrad-level3"
SOURCES = {MRMS: "noaa-mrms", NEXRAD: "noaa-nexrad-level3"}
HOUR = datetime(2025, 12, 4, 3, tzinfo=UTC)
REAL = DATA / "MRMS_MergedReflectivityQCComposite_00.50_20220704-110040.grib2"
REAL_HOUR = datetime(2022, 7, 4, 11, tzinfo=UTC)
REAL_SCANS = {
    f"DDC_N0Q_2020_08_17_05_{minute}_00": DATA / "nexrad" / f"KDDC_N0Q_20200817_05{minute}.nids"
    for minute in ("01", "03")
}
REAL_SCAN_HOUR = datetime(2020, 8, 17, 5, tzinfo=UTC)


def feed(site: Site, name: str, hour: datetime, objects: dict[str, bytes]) -> tuple[Site, str]:
    """Sends each notice twice, and returns the key that was published."""
    opened, provider = fed_by_its_own_provider(site, name)
    provider.put(objects)
    for object_key, data in objects.items():
        bucket = opened.services.datasets[name].input.bucket
        body = json.dumps(SAMPLES[name].announcement(hour, bucket, {object_key: data}))
        provider.send(body)
        provider.send(body)
    assert opened.work()["published"] == 1
    bodies = [json.loads(row["body"]) for row in opened.fetch("SELECT body FROM kfm.inbox")]
    assert [body["Type"] for body in bodies] == ["Notification"] * len(objects)  # of SNS, with S3's own inside
    return opened, f"{SOURCES[name]}:kansas_statewide:6:{hour:%Y-%m-%dT%H}Z:v1-0-0"


def pixels_of(site: Site, name: str, key: str) -> tuple[Any, Any]:
    with rasterio.open(asset_of(site, name, key, "raster")) as raster:
        return raster.read(1, masked=True), raster.bounds


def assert_maximum_of_scans(site: Site, key: str, *scans: bytes) -> None:
    """Compares pixels with the gates that metpy puts in their middle, and cells with the pixels."""
    path = asset_of(site, NEXRAD, key, "raster")
    assert cog_validate(str(path), strict=True) == (True, [], [])
    with rasterio.open(path) as raster:
        published, transform = raster.read(1, masked=True), raster.transform
    gates = [gates_on_pixels(data, transform, published.shape) for data in scans]
    expected = np.maximum(*gates)  # NaN unless both have a gate there
    outside = geometry_mask([kansas().shape], published.shape, transform)
    chosen = np.isfinite(expected) & ~outside
    assert published.mask[outside].all()
    assert not published.mask[chosen].any()
    assert chosen.sum() > 100
    np.testing.assert_array_equal(published.data[chosen], expected[chosen].astype(np.float32))
    assert published.mask[np.isneginf(expected)].all()
    assert all((gates[this][chosen] > gates[1 - this][chosen]).any() for this in (0, 1))  # each scan counts somewhere

    cells = pq.read_table(asset_of(site, NEXRAD, key)).to_pydict()
    total, count = sum(cells["reflectivity_sum"]), sum(cells["reflectivity_count"])
    assert (total, count) == pytest.approx((published.sum(dtype=float), published.count()), rel=1e-6)


def test_two_composites_of_an_hour_become_their_maximum(site: Site) -> None:
    name, first = mrms_object(HOUR)
    _, second = mrms_object(HOUR, seed=1)
    opened, key = feed(site, MRMS, HOUR, {name: first, name.replace("0240.", "0440."): second})
    published, bounds = pixels_of(opened, MRMS, key)
    read = []
    for data in (first, second):
        with MemoryFile(gzip.decompress(data)) as file, file.open() as raster:
            read.append(raster.read(1, window=from_bounds(*bounds, raster.transform)))
    expected = np.maximum(*read)
    np.testing.assert_allclose(published.compressed(), expected[~published.mask], atol=1e-4)
    assert (expected[~published.mask] > -90).all()
    assert set(item_of(opened, MRMS, key)["assets"]) == {"data", "raster", "thumbnail", "provenance"}
    verify_everything(opened)


@needs_data
def test_a_real_composite_agrees_with_rasterio(site: Site) -> None:
    data = REAL.read_bytes()
    name = f"CONUS/MergedReflectivityQCComposite_00.50/20220704/{REAL.name}.gz"
    opened, key = feed(site, MRMS, REAL_HOUR, {name: gzip.compress(data, 1)})
    published, bounds = pixels_of(opened, MRMS, key)
    with MemoryFile(data) as file, file.open() as raster:
        expected = raster.read(1, window=from_bounds(*bounds, raster.transform).round_lengths().round_offsets())
    assert published.count() > 500
    np.testing.assert_allclose(published.compressed(), expected[~published.mask], atol=1e-4)
    assert (expected[~published.mask] > -90).all()
    verify_everything(opened)


def test_scans_of_two_radars_become_their_maximum(site: Site) -> None:
    scans = dict(nexrad_object(HOUR, radar=radar) for radar in ("DDC", "ICT"))
    opened, key = feed(site, NEXRAD, HOUR, scans)
    assert_maximum_of_scans(opened, key, *scans.values())
    verify_everything(opened)


@needs_data
def test_real_scans_of_an_hour_agree_with_metpy(site: Site) -> None:
    scans = {name: path.read_bytes() for name, path in REAL_SCANS.items()}
    opened, key = feed(site, NEXRAD, REAL_SCAN_HOUR, scans)
    assert_maximum_of_scans(opened, key, *scans.values())
    verify_everything(opened)
