"""Layers of features go through all stages like other tables: gates, masks, the verifier and the catalog accept the box
of each shape, and of a masked layer nothing is published that shows where its shapes were."""

import io
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import geopandas
import h3
import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely
import yaml

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.declarations.inputs import Format
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.datasets.trial import Trial, run_trial
from kfm_pipelines.operations.verify import Check, load_trust_root, verify_key
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines_tests.fixtures.features import COLUMNS, as_geojson, as_geopackage, as_shapefile, layer, plots
from kfm_pipelines_tests.fixtures.leaks.scanner import Canary, Scanner
from kfm_pipelines_tests.fixtures.runs.batches import UploadedObject, publish, receive, upload
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site

pytestmark = pytest.mark.slow

EXTENT = {"west": -102.1, "south": 36.95, "east": -94.55, "north": 40.05}
MONTH = f"{START:%Y-%m}"
CELL = h3.latlng_to_cell(38.5, -98.3, 5)
POLICY = {
    "policy": "plots",
    "version": 1,
    "reason": "Plots of these owners are nobody's business",
    "authority": "kfm-data-stewards",
    "reviewed_on": START.date(),
    "review_every_days": 3650,
    "sensitivity": "generalised",
    "minimum_count": 5,
    "stable_id": ["plot"],
    "key_id": "heritage-2026",
    "wording": "Withheld from this release",
    "columns": {"keep": ["acres"], "withhold": ["plot"]},
    "classes": {
        "generalised": {
            "polygon": {"method": "generalise", "resolution": 5},
            "line": {"method": "suppress"},
        }
    },
}


def declare(site: Site, name: str, form: Format, ending: str, **changes: Any) -> None:
    """Writes a declaration of a monthly layer `land/{name}`."""
    source = {
        "bucket": site.bucket,
        "prefix": f"land/{name}/",
        "object_pattern": rf"land/{name}/(?P<year>\d{{4}})-(?P<month>\d{{2}})-\d\.{ending}",
        "events": [],
    }
    key = {
        "source": f"land-{name}",
        "aoi": "kansas_statewide",
        "h3_res": "none",
        "window": "month",
        "transform_version": "v1-0-0",
    }
    names = {"dataset": f"land/{name}", "product": name, "extent": EXTENT, "key": key, "input": source}
    declared = layer(form, **names, **changes).model_dump(mode="json", exclude_defaults=True)
    (site.root / "resources" / "datasets" / f"land-{name}.yaml").write_text(yaml.safe_dump(declared))


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One that has a masked layer and two open ones besides."""
    root = tmp_path_factory.mktemp("features") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        (opened.root / "resources" / "policies" / "plots.yaml").write_text(yaml.safe_dump(POLICY))
        declare(opened, "plots", "geojson", "geojson", policy="plots")
        declare(opened, "fields", "geopackage", "gpkg")
        declare(opened, "lots", "shapefile", "zip", outside_aoi="clip")
        services = Services(load_settings())
        yield replace(opened, services=services)
        services.close()


def upload_layer(site: Site, name: str, *objects: bytes, ending: str, month: str = MONTH) -> str:
    """Uploads the objects of a key, which it returns, and records the messages about them."""
    dataset = site.services.datasets[f"land/{name}"]
    key = f"land-{name}:kansas_statewide:none:{month}:v1-0-0"
    for number, data in enumerate(objects):
        path = f"land/{name}/{month}-{number}.{ending}"
        put = s3_client().put_object(Bucket=site.bucket, Key=path, Body=data)
        facts: dict[str, Any] = {"etag": put["ETag"].strip('"'), "size": len(data), "version_id": put["VersionId"]}
        message = s3_notification(bucket=dataset.input.bucket, object_key=path, event_time=START, **facts)
        receive(site.services, UploadedObject(key, json.dumps(message)))
    return key


def run_stages(site: Site, name: str, *keys: str) -> dict[str, str]:
    """Returns why keys dropped out."""
    return dict(publish(site.services, site.services.datasets[f"land/{name}"], keys, f"run-{uuid4()}").notes)


def failures(site: Site, key: str) -> list[Check]:
    store = site.services.store
    return list(verify_key(store, load_trust_root(store, site.services.settings.signing_key, None), key).failed)


def published(site: Site, name: str, key: str) -> bytes:
    return (site.data / "processed" / f"land-{name}" / f"{key}.parquet").read_bytes()


def planted() -> tuple[geopandas.GeoDataFrame, list[Canary]]:
    """Plots in the middle of one cell, and a canary at two corners of each."""
    dice, (latitude, longitude) = random.Random(3), h3.cell_to_latlng(CELL)
    shapes: list[shapely.Geometry] = []
    canaries: list[Canary] = []
    while len(shapes) < 15:
        west, south = longitude + dice.uniform(-0.02, 0.02), latitude + dice.uniform(-0.02, 0.02)
        corners = [(round(west + d, 9), round(south + d, 9)) for d in (0.0, dice.uniform(0.001, 0.01))]
        try:
            found = [Canary(*corner, ids=(f"KSPLOT{dice.randrange(10**6):06d}",)) for corner in corners]
        except ValueError:
            continue  # its digits could occur by chance
        line = shapely.LineString(corners)
        shapes.append(line if len(shapes) >= 10 else shapely.box(*corners[0], *corners[1]))
        canaries += found
    frame = plots(*shapes)
    frame["PLOT"] = [canary.ids[0] for canary in canaries[::2]]
    return frame, canaries


def test_nothing_of_the_shapes_of_a_masked_layer_is_published(site: Site) -> None:
    frame, canaries = planted()
    key = upload_layer(site, "plots", as_geojson(frame.iloc[:7]), as_geojson(frame.iloc[7:]), ending="geojson")
    assert run_stages(site, "plots", key) == {}
    data = published(site, "plots", key)
    table = pq.read_table(io.BytesIO(data))
    outline = shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(CELL)])
    placed = table.filter(table["geometry"].is_valid())
    assert (placed.num_rows, table.num_rows) == (10, 15)
    assert all(shape.equals_exact(outline, 1e-9, normalize=True) for shape in shapely.from_wkb(placed["geometry"]))
    boxes = table["bbox"].to_pylist()
    assert [box is None for box in boxes] == table["geometry"].is_null().to_pylist()
    assert {tuple(box.values()) for box in boxes if box} == {shapely.from_wkb(placed["geometry"][0].as_py()).bounds}
    scanner = Scanner(canaries)
    assert scanner.scan_tree(site.root, exclude=[site.data / "work" / "restricted"]) == []
    assert scanner.scan_postgres(site.environment["KFM_POSTGRES_URL"]) == []
    assert len(scanner.scan("input", as_geojson(frame))) > len(canaries)
    assert not failures(site, key)


def test_an_open_layer_is_published_with_its_boxes_and_verifies(site: Site) -> None:
    key = upload_layer(site, "fields", as_geopackage(plots(system="EPSG:26914")), ending="gpkg")
    assert run_stages(site, "fields", key) == {}
    data = published(site, "fields", key)
    frame = geopandas.read_parquet(io.BytesIO(data))
    assert frame.crs.to_authority() == ("OGC", "CRS84")
    by_plot = plots().set_index("PLOT").loc[frame["plot"]]
    assert shapely.equals_exact(frame.geometry.values, by_plot.geometry.values, 1e-9, normalize=True).all()
    assert pq.read_schema(io.BytesIO(data)).names == ["plot", "acres", "geometry", "bbox"]
    item = json.loads((site.data / f"catalog/land-fields/items/{key}.json").read_text())
    assert [column["name"] for column in item["properties"]["table:columns"]] == [one["name"] for one in COLUMNS]
    assert np.allclose(item["bbox"], plots().total_bounds)
    assert not failures(site, key)
    assert run_stages(site, "fields", key) == {key: "nothing changed since revision 1"}


@pytest.mark.parametrize(("name", "ending"), [("plots", "geojson"), ("fields", "gpkg")])
def test_a_trial_of_the_same_file_has_the_bytes_that_are_published(
    site: Site, tmp_path: Path, name: str, ending: str
) -> None:
    frame = planted()[0] if name == "plots" else plots(system="EPSG:26914")
    data = as_geojson(frame) if name == "plots" else as_geopackage(frame)
    key = upload_layer(site, name, data, ending=ending, month="2025-09")
    assert run_stages(site, name, key) == {}
    (tmp_path / f"2025-09-0.{ending}").write_bytes(data)
    trial = try_file(site, f"land/{name}", tmp_path / f"2025-09-0.{ending}")
    assert (trial.key, trial.refusals, trial.is_green) == (key, (), True)
    assert trial.data == published(site, name, key)


def test_a_trial_of_a_table_has_the_bytes_that_are_published(site: Site, tmp_path: Path) -> None:
    receive(site.services, upload(site))
    publish(site.services, site.dataset, [site.key()], f"run-{uuid4()}")
    (tmp_path / "one.parquet").write_bytes(streamflow_object(START)[1])
    trial = try_file(site, "usgs/streamflow", tmp_path / "one.parquet")
    assert (trial.key, trial.is_green) == (site.key(), True)
    assert trial.data == (site.data / f"processed/usgs-streamflow/{site.key()}.parquet").read_bytes()


def try_file(site: Site, name: str, path: Path) -> Trial:
    services = site.services
    return run_trial(services.settings.resources, services.datasets[name], [path], services.today(), site.environment)


def test_what_a_clipped_layer_leaves_out_is_in_the_log(site: Site) -> None:
    outside = plots(shapely.box(-98, 38, -97, 39), shapely.box(-80, 38, -79, 39))
    key = upload_layer(site, "lots", as_shapefile(outside), ending="zip")
    assert run_stages(site, "lots", key) == {}
    assert read_parquet(published(site, "lots", key), key)["plot"].to_pylist() == ["plot-0"]
    [row] = site.services.database.fetch(f"SELECT detail FROM kfm.wal WHERE key = '{key}' AND step = 'compute'")
    assert row["detail"]["left_out"] == {"outside the area": 1}


def test_a_bad_layer_harms_nothing_else(site: Site) -> None:
    bowtie = shapely.Polygon([(-98, 38), (-97, 39), (-97, 38), (-98, 39)])
    good = upload_layer(site, "plots", as_geojson(planted()[0]), ending="geojson", month="2025-10")
    bad = upload_layer(site, "plots", as_geojson(plots(bowtie)), ending="geojson", month="2025-11")
    notes = run_stages(site, "plots", good, bad)
    assert notes.keys() == {bad}
    assert "land/plots/2025-11-0.geojson: 1 feature has an invalid geometry" in notes[bad]
    assert failures(site, good) == []
