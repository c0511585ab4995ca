"""Bad rasters, layers and tables of every kind: one clear sentence for each, and whatever is good beside them is
published."""

import gzip
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from kfm_pipelines.producer.samples.mrms import mrms_object
from kfm_pipelines_tests.fixtures.features import (
    FAULTS,
    TABLE,
    as_geojson,
    as_geoparquet,
    as_shapefile,
    change_first_feature,
    named_system,
    plots,
    unzipped,
    zip_of,
)
from kfm_pipelines_tests.fixtures.rasters.invented import (
    RAIN,
    VALUES,
    geotiff,
    netcdf,
    overview_in,
    sparse_geotiff,
    vrt_of,
)
from kfm_pipelines_tests.fixtures.sites.own_datasets import column, daily, declare_all, item_of, upload
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.journeys.feeds.test_scenes import verify_everything

pytestmark = pytest.mark.slow
RASTERS, PLOTS, READINGS = "tests/rain", "tests/plots", "tests/readings"
DECLARED = [
    daily(
        RASTERS,
        aoi="kansas_statewide",
        h3_res="5",
        input={"format": "geotiff", "formats": {".nc": "netcdf", ".grib2": "grib2"}},
        processor="raster",
        raster={"bands": [RAIN]},
    ),
    daily(
        PLOTS,
        aoi="kansas_statewide",
        input={
            "format": "geojson",
            "formats": {".parquet": "parquet", ".zip": "shapefile"},
            "columns": "declared",
            "limits": {"unpacked_bytes": 10_000_000},
        },
        processor="vector",
        table=TABLE,
    ),
    daily(
        READINGS,
        aoi="kansas_statewide",
        input={"format": "csv"},
        processor="table",
        table={
            "primary_key": ["station"],
            "columns": [column("station", "string", nullable=False), column("rain", "float64")],
        },
    ),
]
WGS84, UTM = named_system("urn:ogc:def:crs:OGC:1.3:CRS84"), named_system("urn:ogc:def:crs:EPSG::26914")


class Object(NamedTuple):
    dataset: str
    file: str
    data: bytes


class Bad(NamedTuple):
    """An object, and how the sentence about it goes on after its address, or after the key where a gate refused it."""

    object: Object
    sentence: str
    of_gate: bool = False


def raster(data: bytes, file: str = "rain.tif") -> Object:
    return Object(RASTERS, file, data)


def layer(data: bytes, file: str = "plots.geojson") -> Object:
    return Object(PLOTS, file, data)


def grib() -> bytes:
    return gzip.decompress(mrms_object(datetime(2025, 12, 4, tzinfo=UTC))[1])


def good(folder: Path) -> list[Object]:
    """One of each format that also has bad ones."""
    return [
        raster(geotiff()),
        raster(netcdf(folder, np.array([[1, 2]], np.int16), scale=0.5, nodata=-1), "rain.nc"),
        raster(grib(), "rain.grib2"),
        layer(as_geojson(plots())),
        layer(as_geoparquet(plots()), "plots.parquet"),
        layer(as_shapefile(plots()), "plots.zip"),
        Object(READINGS, "readings.csv", b'station,rain\n"Salina",1.5\n'),
    ]


def bad(folder: Path) -> dict[str, Bad]:
    not_a_tiff = " is not readable as GeoTIFF: it is another format, cut or bad"
    archive = as_shapefile(plots())
    files = unzipped(archive)
    found = {
        "a raster without CRS": Bad(raster(geotiff(crs=None)), " has no reference system"),
        "a layer without CRS": Bad(layer(as_geojson(plots(), crs=None)), " does not state the reference system"),
        "two CRS": Bad(
            layer(change_first_feature(as_geojson(plots(), crs=WGS84), crs=UTM)),
            " states two different reference systems",
        ),
        "too many pixels": Bad(raster(sparse_geotiff(70_000, 70_000, np.uint8, 70_000)), " has 4900000000 pixels;"),
        "an overview elsewhere": Bad(
            raster(overview_in("/etc/passwd", geotiff())), " has its overviews in another file"
        ),
        "a VRT of a file": Bad(raster(vrt_of("/etc/passwd")), not_a_tiff),
        "a VRT of an address": Bad(raster(vrt_of("/vsicurl/https://example.com/a.tif")), not_a_tiff),
        "a zip that leads out": Bad(
            layer(zip_of(files | {"../plots.txt": b""}), "plots.zip"), " has a file whose name leads out of the archive"
        ),
        "a bomb": Bad(layer(zip_of(files | {"plots.dbf": bytes(50_000_000)}), "plots.zip"), " unpacks to "),
        "packed overflow": Bad(
            raster(netcdf(folder, np.array([[1, 32767]], np.int16), scale=1e35, nodata=-1), "rain.nc"),
            " unpacks to values beyond 32-bit floats",
        ),
        "a cut GRIB": Bad(
            raster(grib()[: len(grib()) // 2], "rain.grib2"), " is not readable as GRIB2: message 1 is cut or damaged"
        ),
        "an open quote": Bad(
            Object(READINGS, "readings.csv", b'station,rain\n"Salina,1.5\n'),
            " is not readable as CSV: a quote is never closed",
        ),
        "a Shapefile without .prj": Bad(layer(as_shapefile(plots(), ".prj"), "plots.zip"), " has no .prj file"),
        "a cut Shapefile": Bad(layer(archive[: len(archive) // 2], "plots.zip"), " is not readable as a zip"),
        "nothing but nodata": Bad(
            raster(geotiff(np.full_like(VALUES, -1), nodata=-1)), ": expected at least one value", of_gate=True
        ),
    }
    for case in ("a bow tie", "a ring without area", "antimeridian", "swapped axes"):
        shapes, sentence = FAULTS[case]
        found[case] = Bad(
            layer(as_geoparquet(plots(*shapes)), "plots.parquet"), f": {sentence.partition(' .*')[0].rstrip('$')}"
        )
    return found


def test_bad_objects_stop_alone_with_a_clear_sentence(site: Site, tmp_path: Path) -> None:
    site = declare_all(site, DECLARED)
    days = (f"2025-11-{day:02d}" for day in range(1, 31))
    published = {_put(site, next(days), one): one for one in good(tmp_path)}
    refused = {_put(site, next(days), one.object): one for one in bad(tmp_path).values()}

    counts = site.work()

    letters = site.fetch("SELECT key, reason FROM kfm.dead_letters")
    reasons = {letter["key"]: letter["reason"] for letter in letters}
    assert reasons.keys() == refused.keys()
    for key, one in refused.items():
        subject = f"{key}: qa gate: raster, rain" if one.of_gate else _address(site, key, one.object)
        assert f"{subject}{one.sentence}" in reasons[key]
        assert re.search(r"\n|Traceback|File \"|/tmp|vsimem|root:", reasons[key]) is None
        assert len(reasons[key]) < 300
    assert counts == {
        "keys": len(published) + len(refused), "published": len(published), "skipped": 0, "failed": len(refused)
    }  # fmt: skip
    for key, object_ in published.items():
        assert item_of(site, object_.dataset, key)["properties"]["table:row_count"] > 0
    assert [path for path in site.tree("catalog", "processed") if any(key in path for key in refused)] == []
    verify_everything(site)


def _put(site: Site, day: str, one: Object) -> str:
    return upload(site, one.dataset, day, one.file, one.data)


def _address(site: Site, key: str, one: Object) -> str:
    day = key.split(":")[3]
    return f"s3://{site.bucket}/{one.dataset}/{day.replace('-', '/')}/{one.file}"
