"""Real files go from an object to a published Item, and what is published agrees with an independent reading."""

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import geopandas
import h3
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely
from pystac.validation import validate_dict
from rasterio.features import geometry_mask
from rio_cogeo.cogeo import cog_validate

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.catalog.official_schemas import official_validator
from kfm_pipelines_tests.fixtures.real_files import DATA, TRIBAL_AREAS, need_tribal_areas, needs_data
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.scenes import kansas
from kfm_pipelines_tests.fixtures.sites.own_datasets import asset_of, column, daily, declare_all, item_of, upload
from kfm_pipelines_tests.fixtures.sites.site import RECEIVED, Site, opened_site
from kfm_pipelines_tests.journeys.feeds.test_scenes import verify_everything

pytestmark = [pytest.mark.slow, needs_data]
GFS, SURFACE, MESONET, LANDS = "noaa/gfs", "noaa/surface", "ou/mesonet", "census/tribal-lands"
STREAMFLOW, DROUGHT = "usgs/streamflow", "drought/tribal-areas"
GFS_FILE, GFS_NAME = DATA / "netcdf" / "GFS_test.nc", "Pressure_reduced_to_MSL_msl"
SURFACE_FILE, MESONET_FILE = DATA / "tables" / "SFC_obs.csv", DATA / "tables" / "mesonet_sample.txt"
LANDS_FILE, GAUGES_FILE = DATA / "kansas_aiannh.geojson", DATA / "usgs_nwis_iv.json"

DECLARED = [
    daily(
        GFS,
        aoi="kansas_statewide",
        h3_res="3",
        input={"format": "netcdf"},
        processor="raster",
        raster={"bands": [{"name": "pressure", "source": GFS_NAME, "unit": "Pa", "description": "At sea level"}]},
    ),
    daily(
        SURFACE,
        aoi="united_states",
        input={"format": "csv", "csv": {"nulls": ["   "]}, "timezone": "UTC", "columns": "declared"},
        processor="table",
        table={
            "primary_key": ["station", "observed_at"],
            "time_column": "observed_at",
            "longitude_column": "lon",
            "latitude_column": "lat",
            "columns": [
                column("station", "string", nullable=False),
                column("observed_at", "timestamp", nullable=False, source="valid"),
                column("lon", "float64", nullable=False),
                column("lat", "float64", nullable=False),
                column("tmpf", "float64", unit="degF"),
                column("mslp", "float64", unit="hPa"),
                column("skyc1", "string"),
                column("wxcodes", "string"),
                column("ice_accretion_1hr", "float64"),  # wholly empty
            ],
        },
    ),
    daily(
        MESONET,
        aoi="united_states",
        input={"format": "csv", "csv": {"nulls": [" "]}, "columns": "declared"},
        processor="table",
        table={
            "primary_key": ["stid"],
            "columns": [
                column("stid", "string", nullable=False, source="STID"),
                column("minute", "int64", nullable=False, source="MI"),
                column("tair", "int64", source="TAIR", unit="degF"),
                column("wdir", "string", source="WDIR"),
                column("rain", "float64", source="RAIN", unit="inch"),
            ],
        },
    ),
    daily(
        LANDS,
        aoi="kansas_statewide",
        input={"format": "geojson", "columns": "declared"},
        processor="vector",
        policy="public-layers",
        table={
            "primary_key": ["geoid"],
            "geometry_column": "geometry",
            "columns": [
                column("geoid", "string", nullable=False, source="GEOID"),
                column("name", "string", nullable=False, source="NAMELSAD"),
                column("km2", "float64", unit="km2"),
                column("geometry", "geometry", nullable=False),
            ],
        },
    ),
]  # fmt: skip


def _gauges_everywhere(document: dict[str, Any]) -> None:
    """The real answer is about Maryland, and ends with the first minute of another hour."""
    document["key"] |= {"aoi": "united_states", "window": "day"}
    document["input"]["object_pattern"] = r"usgs/streamflow/(?P<year>\d{4})/(?P<month>\d{2})/(?P<day>\d{2})/.+\.json"


@pytest.fixture(scope="module")
def published(
    stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, dict[str, str]]]:
    """All files announced by S3 itself and published together; and the key of each dataset."""
    root = tmp_path_factory.mktemp("real") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template, RECEIVED) as opened:
        site = declared_anew(opened, "usgs-streamflow", _gauges_everywhere)
        site = declared_anew(site, "drought-tribal-areas", lambda one: one.update(late="patch"))  # weeks a year apart
        site = declare_all(site, DECLARED)
        keys = {
            name: upload(site, name, day, path.name, path.read_bytes())
            for name, day, path in (
                (GFS, "2010-10-26", GFS_FILE),
                (SURFACE, "1993-03-12", SURFACE_FILE),
                (MESONET, "2019-09-09", MESONET_FILE),
                (LANDS, "2024-01-01", LANDS_FILE),
                (STREAMFLOW, "2019-02-14", GAUGES_FILE),
            )
        }
        for path in TRIBAL_AREAS:
            upload(site, DROUGHT, path.stem.removeprefix("USDM_"), path.name, path.read_bytes())
        site.work()
        yield site, keys


Published = tuple[Site, dict[str, str]]


def rows_of(published: Published, name: str) -> list[dict[str, Any]]:
    site, keys = published
    rows: list[dict[str, Any]] = pq.read_table(asset_of(site, name, keys[name])).to_pylist()
    return rows


def test_all_are_published_and_verified(published: Published) -> None:
    site, keys = published
    assert site.fetch("SELECT key, reason FROM kfm.dead_letters") == []
    official = official_validator()
    for name, key in keys.items():
        item = item_of(site, name, key)
        assert item["properties"]["table:row_count"] > 0
        assert validate_dict(item, validator=official)[1:] == item["stac_extensions"]
    messages = site.fetch("SELECT shape, body FROM kfm.inbox")
    assert {(row["shape"], json.loads(row["body"])["Type"]) for row in messages} == {
        ("s3-notification", "Notification")
    }
    verify_everything(site)


def test_pixels_and_cells_of_gfs(published: Published) -> None:
    site, keys = published
    with rasterio.open(f"netcdf:{GFS_FILE}:{GFS_NAME}") as file:
        everything, grid = file.read(1), file.transform
    path = asset_of(site, GFS, keys[GFS], "raster")
    assert cog_validate(str(path), strict=True) == (True, [], [])
    with rasterio.open(path) as raster:
        values, transform = raster.read(1, masked=True), raster.transform
    left, top = round((transform.c - grid.c) / grid.a), round((transform.f - grid.f) / grid.e)
    expected = everything[top : top + values.shape[0], left : left + values.shape[1]]
    np.testing.assert_array_equal(values.mask, geometry_mask([kansas().shape], values.shape, transform))
    np.testing.assert_array_equal(values.compressed(), expected[~values.mask])

    rows = rows_of(published, GFS)
    assert len(rows) > 10
    for row in rows:
        shape = shapely.Polygon([(east, north) for north, east in h3.cell_to_boundary(row["h3_cell"])])
        count = total = 0.0
        for (down, across), value in np.ndenumerate(values.data):
            if not values.mask[down, across]:
                west, north = transform @ (across, down)
                share = shape.intersection(shapely.box(west, north - 1, west + 1, north)).area
                count, total = count + share, total + share * value
        assert (row["pressure_count"], row["pressure_sum"]) == pytest.approx((count, total), rel=1e-5)


def test_readings_of_surface_stations(published: Published) -> None:
    rows = {(row["station"], row["observed_at"]): row for row in rows_of(published, SURFACE)}
    read = pd.read_csv(SURFACE_FILE, skipinitialspace=True)
    assert len(rows) == len(read)
    for one in read.itertuples():
        row = rows[one.station, datetime.fromisoformat(one.valid).replace(tzinfo=UTC)]
        assert (row["lon"], row["lat"]) == (one.lon, one.lat)
        for name in ("tmpf", "mslp", "wxcodes", "skyc1", "ice_accretion_1hr"):
            value = getattr(one, name)
            assert row[name] == (None if pd.isna(value) else value)


def test_readings_of_the_mesonet(published: Published) -> None:
    def number(text: str) -> float | None:
        return float(text) if text.strip() else None

    with MESONET_FILE.open(newline="") as file:
        expected = {
            one["STID"]: (int(one["MI"]), number(one["TAIR"]), one["WDIR"].strip() or None, number(one["RAIN"]))
            for one in csv.DictReader(file)
        }
    rows = rows_of(published, MESONET)
    assert {row["stid"]: (row["minute"], row["tair"], row["wdir"], row["rain"]) for row in rows} == expected


def test_outlines_of_tribal_lands(published: Published) -> None:
    site, keys = published
    expected = geopandas.read_file(LANDS_FILE).to_crs("EPSG:4326").set_index("GEOID")
    found = geopandas.read_parquet(asset_of(site, LANDS, keys[LANDS])).set_index("geoid")
    assert sorted(found.index) == sorted(expected.index)
    for geoid, outline in found.geometry.items():
        assert outline.symmetric_difference(expected.geometry[geoid]).area < 1e-12
        assert (found.name[geoid], found.km2[geoid]) == (expected.NAMELSAD[geoid], expected.km2[geoid])


def test_readings_of_usgs_gauges(published: Published) -> None:
    names = {"00060": "discharge_cfs", "00065": "gage_height_ft"}
    expected = set()
    for series in json.loads(GAUGES_FILE.read_bytes())["value"]["timeSeries"]:
        site_no, code = series["sourceInfo"]["siteCode"][0]["value"], series["variable"]["variableCode"][0]["value"]
        for one in series["values"][0]["value"]:
            expected.add((site_no, names[code], datetime.fromisoformat(one["dateTime"]), float(one["value"])))
    found = {
        (row["site_no"], name, row["observed_at"], row[name])
        for row in rows_of(published, STREAMFLOW)
        for name in names.values()
        if row[name] is not None
    }
    assert found == expected


@need_tribal_areas
@pytest.mark.parametrize("path", TRIBAL_AREAS, ids=lambda path: path.stem)
def test_classes_of_the_drought_monitor(published: Published, path: Path) -> None:
    key = f"drought-tribal-areas:united_states:none:{path.stem.removeprefix('USDM_')}:v1-0-0"
    found = pq.read_table(asset_of(published[0], DROUGHT, key)).to_pylist()
    expected = pd.read_parquet(path)
    names = {"gnis": "GNIS", "lsad": "LSAD", "usdm_class": "USDM Class", "class_area_m2": "USDM Class Area (m^2)"}
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(
        expected[list(names.values())].drop_duplicates().itertuples(index=False, name=None)
    )
