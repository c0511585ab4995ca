"""Scenes of a provider: its topic announces a folder, and an Item describes what stays in its bucket."""

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pystac.validation import validate_dict

from kfm_pipelines.aws.emulated_provider import EmulatedProvider
from kfm_pipelines.aws.provision import provision
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.producer.samples.landsat import landsat_folder, landsat_message, landsat_product
from kfm_pipelines.stages.reproduce import REPRODUCED
from kfm_pipelines.stages.trigger import RunTrigger
from kfm_pipelines_tests.fixtures.catalog.official_schemas import official_validator
from kfm_pipelines_tests.fixtures.events.messages import SENTINEL_1
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data
from kfm_pipelines_tests.fixtures.runs.batches import publish
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.runs.replay_runs import close_until, plan_replay
from kfm_pipelines_tests.fixtures.scenes import SENTINEL_1_FOLDER, sentinel_1_info
from kfm_pipelines_tests.fixtures.sites.command import kfm_in_process
from kfm_pipelines_tests.fixtures.sites.own_datasets import item_of
from kfm_pipelines_tests.fixtures.sites.site import Site

DAY, NEXT_DAY = datetime(2025, 12, 4, tzinfo=UTC), datetime(2025, 12, 5, tzinfo=UTC)
REAL_LANDSAT = DATA / "landsat" / "LC08_L2SP_017036_20130419_20200913_02_T2"
REAL_SENTINEL_2 = DATA / "sentinel-2" / "S2A_T34LBP_20220401"


def fed_by_its_own_provider(site: Site, name: str, **changes: Any) -> tuple[Site, EmulatedProvider]:
    """The dataset listens to a topic of this test alone."""

    def change(document: dict[str, Any]) -> None:
        feed = document["input"]["provider"]
        feed["topic"] = f"{feed['topic'].rpartition(':')[0]}:notify-{secrets.token_hex(4)}"
        if document["input"]["bucket"] == "usgs-landsat":  # its messages name their bucket
            document["input"]["bucket"] = f"landsat-{secrets.token_hex(4)}"
        for section, fields in changes.items():
            document[section] |= fields

    opened = declared_anew(site, name.replace("/", "-"), change)
    provider = EmulatedProvider(opened.services.datasets[name])
    provider.set_up()
    provision(opened.services.settings, opened.services.datasets)
    return opened, provider


def verify_everything(site: Site) -> None:
    verified = json.loads(kfm_in_process(site.environment, "verify", "--all", "--json").out)
    assert verified["failed"] == []


def moved(objects: Mapping[str, bytes], degrees: float) -> dict[str, bytes]:
    """The scene somewhere else."""
    changed = dict(objects)
    for name, data in objects.items():
        if name.endswith("_SR_stac.json"):
            document = json.loads(data)
            ring = document["geometry"]["coordinates"][0]
            document["geometry"]["coordinates"] = [[[east + degrees, north] for east, north in ring]]
            changed[name] = json.dumps(document).encode()
    return changed


def test_a_scene_is_described_where_it_is_and_one_elsewhere_is_counted(site: Site) -> None:
    name, sample = "usgs/landsat-ndvi", SAMPLES["usgs/landsat-ndvi"]
    site, provider = fed_by_its_own_provider(site, name)
    bucket = site.services.datasets[name].input.bucket
    provider.put(sample.objects(DAY))
    provider.put(moved(sample.objects(NEXT_DAY), 20.0))
    for day in (DAY, DAY, NEXT_DAY):
        provider.send(json.dumps(landsat_message(day, bucket)))
    level_1 = landsat_product(DAY).replace("L2SP", "L1TP")
    there = f"s3://{bucket}/collection02/level-1/standard/oli-tirs/2025/028/033/{level_1}/"
    provider.send(json.dumps({"landsat_product_id": level_1, "s3_location": there}))

    counts = site.drain()
    assert (counts.received, counts.recorded, counts.duplicates, counts.refused) == (4, 2, 1, 0)
    site.work()
    key = "usgs-landsat:kansas_statewide-028033:8:2025-12-04:v1-0-0"
    item = item_of(site, name, key)
    folder = f"s3://{bucket}/{landsat_folder(DAY)}"
    assert item["assets"]["red"]["href"] == f"{folder}{landsat_product(DAY)}_SR_B4.TIF"
    assert item["assets"]["red"]["storage:refs"] == ["provider"]
    assert item["properties"]["storage:schemes"]["provider"]["requester_pays"] is True
    inputs = [link["href"] for link in item["links"] if link["rel"] == "derived_from"]
    ends = ("MTL.json", "QA_PIXEL.TIF", "SR_B4.TIF", "SR_B5.TIF", "SR_stac.json", "thumb_small.jpeg")
    assert inputs == [f"{folder}{landsat_product(DAY)}_{end}" for end in ends]
    assert {"mtl", "usgs_item", "scene_thumbnail", "raster", "thumbnail"} <= item["assets"].keys()
    assert item["properties"]["table:row_count"] > 50

    [skipped] = site.fetch("SELECT key, detail ->> 'reason' AS reason FROM kfm.wal WHERE step = 'skip'")
    assert skipped["key"].endswith(":2025-12-05:v1-0-0")
    assert skipped["reason"] == "nothing to publish: 1 scene outside the area"
    assert site.fetch("SELECT * FROM kfm.dead_letters") == []
    site.services.telemetry.flush()
    status = kfm_in_process(site.environment, "status").out
    assert "1 notice of providers that no dataset takes" in status
    assert "1 record: scene outside the area" in status
    verify_everything(site)

    # The same scene announced again has nothing new; the objects of its folder are compared, not read.
    provider.send(json.dumps(landsat_message(DAY, bucket) | {"sent": "again"}))
    site.drain()
    site.work()
    assert site.fetch("SELECT count(*) AS n FROM kfm.revisions") == [{"n": 1}]
    [fetched] = site.fetch("SELECT hits, misses FROM kfm.fetch_totals WHERE dataset = 'usgs/landsat-ndvi'")
    assert fetched == {"hits": 1, "misses": 9}  # no bands of the scene elsewhere

    # Its objects, and no others, give the same bytes again.
    close_until(site.services, name, NEXT_DAY)
    trigger = RunTrigger(replay=plan_replay(site.services, name, [key]))
    batch = publish(site.services, site.services.datasets[name], [key], "again", trigger)
    assert batch.notes == {key: REPRODUCED}


def area(site: Site, name: str, west: float, south: float, east: float, north: float) -> None:
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    feature = {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
    (site.services.settings.resources / "aois" / f"{name}.geojson").write_text(json.dumps(feature))


def objects_in(folder: Path, prefix: str) -> dict[str, bytes]:
    return {f"{prefix}{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_radar_scene_is_described_from_its_message(site: Site) -> None:
    name = "esa/sentinel-2-scenes"
    pattern = r"GRD/(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})/IW/DV/S1[A-D]_\w+_(?P<slice>\w{6}_\w{4})/"
    site, provider = fed_by_its_own_provider(
        site,
        name,
        key={"source": "esa-sentinel-1", "fold_by": "slice"},
        input={"bucket": "sentinel-s1-l1c", "prefix": "GRD/", "object_pattern": pattern},
        scene={"product": "sentinel-1-grd"},
    )
    provider.put({f"{SENTINEL_1['path']}/productInfo.json": json.dumps(sentinel_1_info()).encode()})
    for copy in ({}, {"sent": "again"}):
        provider.send(json.dumps(SENTINEL_1 | copy))
    elsewhere = SENTINEL_1 | {"id": "S1A_IW_SLC", "path": str(SENTINEL_1["path"]).replace("GRD", "SLC")}
    provider.send(json.dumps(elsewhere))

    site.drain()
    site.work()
    item = item_of(site, name, "esa-sentinel-1:kansas_statewide-07c0ff_1a2b:none:2025-12-04:v1-0-0")
    assert item["properties"]["sat:relative_orbit"] == 154
    assert "eo:cloud_cover" not in item["properties"]
    assert item["assets"]["vh"]["href"] == f"{SENTINEL_1_FOLDER}measurement/iw-vh.tiff"
    assert item["assets"]["vh"]["storage:refs"] == ["provider"]
    assert validate_dict(item, validator=official_validator())[1:] == item["stac_extensions"]
    assert site.fetch("SELECT reason FROM kfm.dead_letters") == []
    assert site.fetch("SELECT count(*) AS n FROM kfm.revisions") == [{"n": 1}]
    verify_everything(site)


@needs_data
def test_real_scenes_are_published_from_their_real_messages(site: Site) -> None:
    area(site, "georgia", -84.0, 33.0, -82.0, 35.0)
    area(site, "angola", 18.0, -11.0, 20.0, -9.0)
    landsat, sentinel = "usgs/landsat-ndvi", "esa/sentinel-2-scenes"
    root = "collection02/level-2/standard/oli-tirs/2013/017/036"
    pattern = r"[a-z0-9/-]+/LC08_L2SP_(?P<tile>\d{6})_(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})_\d{8}_02_T[12]/"
    site, usgs = fed_by_its_own_provider(site, landsat, key={"aoi": "georgia"}, input={"object_pattern": pattern})
    tiles = r"tiles/(?P<tile>\d+/[A-Z]/[A-Z]{2})/(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})/\d{1,3}/"
    site, esa = fed_by_its_own_provider(site, sentinel, key={"aoi": "angola"}, input={"object_pattern": tiles})
    bucket = site.services.datasets[landsat].input.bucket

    usgs.put(objects_in(REAL_LANDSAT, f"{root}/{REAL_LANDSAT.name}/"))
    message = {"landsat_product_id": REAL_LANDSAT.name, "s3_location": f"s3://{bucket}/{root}/{REAL_LANDSAT.name}/"}
    usgs.send(json.dumps(message))
    info = json.loads((REAL_SENTINEL_2 / "tileInfo.json").read_bytes())
    esa.put(objects_in(REAL_SENTINEL_2, f"{info['path']}/"))
    product = {"name": info["productName"], "path": info["productPath"], "timestamp": info["timestamp"]}
    esa.send(json.dumps({**product, "tiles": [{"path": info["path"], "timestamp": info["timestamp"]}]}))
    assert site.drain().recorded == 2
    site.work()

    assert site.fetch("SELECT key, reason FROM kfm.dead_letters") == []
    scene = item_of(site, landsat, "usgs-landsat:georgia-017036:8:2013-04-19:v1-0-0")
    tile = item_of(site, sentinel, "esa-sentinel-2:angola-34lbp:none:2022-04-01:v1-0-0")
    assert (scene["properties"]["eo:cloud_cover"], scene["properties"]["table:row_count"]) == (100.0, 0)
    assert tile["properties"]["eo:cloud_cover"] == pytest.approx(92.696983)  # not the 0.0 of tileInfo.json
    assert tile["properties"]["sat:relative_orbit"] == 64
    official = official_validator()
    for one in (scene, tile):
        assert validate_dict(one, validator=official)[1:] == one["stac_extensions"]
    verify_everything(site)
