"""Scenes are described by what their metadata say; those outside the area are left out and counted."""

import dataclasses
import json
from datetime import timedelta
from typing import Any

import pytest
import shapely

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates import judge_quality, judge_schema
from kfm_pipelines.producer.samples.landsat import landsat_product
from kfm_pipelines.stages.compute.process import process
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.scene import OUTSIDE
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.gates.subjects import subject_of
from kfm_pipelines_tests.fixtures.scenes import START, kansas, sample_sources

LANDSAT, SENTINEL_2 = "usgs/landsat-ndvi", "esa/sentinel-2-scenes"
ELSEWHERE = Area("elsewhere", shapely.box(0, 0, 1, 1))


def described(name: str, **scene: Any) -> Dataset:
    """A dataset of scenes without an index."""
    document = declared()[name].model_dump(mode="json")
    section = {"product": document["scene"]["product"], **scene}
    changed = {**document, "scene": section, "key": {**document["key"], "h3_res": "none"}, "quality": {}}
    del changed["table"]
    return Dataset.model_validate(changed)


def computed(name: str, area: Area | None = None, **scene: Any) -> Computed:
    return process(described(name, **scene), sample_sources(name), lambda: area or kansas())


@pytest.mark.parametrize("name", [LANDSAT, SENTINEL_2])
def test_a_scene_is_a_row_an_item_and_links(name: str) -> None:
    dataset, made = described(name), computed(name)
    verdict = judge_schema(subject_of(made.table, dataset, (START, START + timedelta(days=1))))
    assert (made.table.num_rows, verdict.findings, made.left_out) == (1, (), {})
    [row] = made.table.to_pylist()
    assert shapely.from_wkb(row["geometry"]).intersects(kansas().shape)
    assert made.attachments.properties["eo:cloud_cover"] == row["cloud_cover"]
    assert all(asset["href"].startswith(row["href"]) for asset in made.attachments.remote.values())
    assert "thumbnail" in {one.name for one in made.attachments.files}


@pytest.mark.parametrize("name", [LANDSAT, SENTINEL_2])
def test_a_scene_elsewhere_is_left_out_and_counted(name: str) -> None:
    made = computed(name, ELSEWHERE)
    assert (made.table.num_rows, bool(made.attachments), made.left_out) == (0, False, {OUTSIDE: 1})


def test_a_common_edge_is_not_inside() -> None:
    east = max(place[0] for place in shapely.get_coordinates(shapely.from_wkb(row_of(computed(LANDSAT))["geometry"])))
    assert computed(LANDSAT, Area("beside", shapely.box(east, 38, east + 1, 40))).left_out == {OUTSIDE: 1}


def test_the_order_of_the_objects_does_not_matter() -> None:
    dataset, objects = described(LANDSAT), sample_sources(LANDSAT)
    assert process(dataset, objects, kansas) == process(dataset, objects[::-1], kansas)


def test_two_scenes_of_a_key_have_assets_of_their_own() -> None:
    later = START + timedelta(days=8)
    made = process(described(LANDSAT), sample_sources(LANDSAT) + sample_sources(LANDSAT, later), kansas)
    assert made.table.column("scene_id").to_pylist() == [landsat_product(START), landsat_product(later)]
    assert {f"{landsat_product(START)}-red", f"{landsat_product(later)}-red"} <= made.attachments.remote.keys()
    assert made.attachments.properties == {
        "constellation": "landsat",
        "platform": "landsat-9",
        "instruments": ["oli", "tirs"],
        "gsd": 30.0,
    }


def row_of(made: Computed) -> dict[str, Any]:
    [row] = made.table.to_pylist()
    return row  # type: ignore[no-any-return]


@pytest.mark.parametrize("derived", [{}, {"derive": "ndvi"}])
def test_a_cloudier_scene_than_declared_is_refused_by_the_gate(derived: dict[str, Any]) -> None:
    clouds = row_of(computed(LANDSAT))["cloud_cover"]
    for allowed, findings in ((clouds, []), (1.0, [f"1 of 1 scenes with more, up to {clouds:g} %"])):
        dataset, made = described(LANDSAT, cloud_cover=allowed), computed(LANDSAT, cloud_cover=allowed, **derived)
        judged = subject_of(made.table, dataset, attachments=made.attachments)
        assert [one.measured for one in judge_quality(judged).findings] == findings


def test_clouds_elsewhere_do_not_matter() -> None:
    dataset, made = described(LANDSAT, cloud_cover=1.0), computed(LANDSAT, ELSEWHERE, cloud_cover=1.0)
    judged = subject_of(made.table, dataset, attachments=made.attachments)
    assert [one.rule for one in judge_quality(judged).findings] == ["not-empty"]


def test_a_picture_must_be_one() -> None:
    objects = [
        dataclasses.replace(one, data=b"<html>") if one.asset_uri.endswith(".jpeg") else one
        for one in sample_sources(LANDSAT)
    ]
    with pytest.raises(InputUnreadable, match=r"_thumb_small\.jpeg must be a JPEG picture"):
        process(described(LANDSAT), objects, kansas)


def test_a_scene_taken_on_another_day_than_its_window_is_refused_by_the_gate() -> None:
    made, dataset = computed(SENTINEL_2), described(SENTINEL_2)
    day = START + timedelta(days=1)
    findings = judge_schema(subject_of(made.table, dataset, (day, day + timedelta(days=1)))).findings
    assert [one.rule for one in findings] == ["time-in-window"]


def test_without_a_picture_there_is_none() -> None:
    objects = [one for one in sample_sources(SENTINEL_2) if not one.asset_uri.endswith(".jpg")]
    names = {one.name for one in process(described(SENTINEL_2), objects, kansas).attachments.files}
    assert names == {"tile_info", "metadata"}


def test_metadata_are_copied_as_they_are() -> None:
    by_name = {one.name: one.data for one in computed(LANDSAT).attachments.files}
    assert json.loads(by_name["mtl"])["LANDSAT_METADATA_FILE"]
    assert SourceObject(sample_sources(LANDSAT)[-1].asset_uri, by_name["mtl"]) == sample_sources(LANDSAT)[-1]
