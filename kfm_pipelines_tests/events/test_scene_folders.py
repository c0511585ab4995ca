"""Scenes are folders: whichever object of one a message is about, the event is about the folder."""

from json import dumps
from typing import Any

import pytest

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.errors import LocationUndeclared, NoticeUnwanted
from kfm_pipelines.events import IngestEvent, newest_per_object, resolve_event
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines_tests.fixtures.events.changes import changed
from kfm_pipelines_tests.fixtures.events.messages import LANDSAT, SENTINEL_2
from kfm_pipelines_tests.fixtures.events.notices import NOON, declared, event, objects

PRODUCT = LANDSAT["landsat_product_id"]
FOLDER = LANDSAT["s3_location"].removeprefix("s3://usgs-landsat/")
TILE = "tiles/14/S/QH/2025/12/3/0/"
LEVEL_2 = changed(SENTINEL_2, "name", str(SENTINEL_2["name"]).replace("L1C", "L2A"))


def landsat(name: str = "", **fields: Any) -> IngestEvent:
    return event(bucket="usgs-landsat", object_key=f"{FOLDER}{name}", **fields)


def test_a_landsat_scene_is_work_for_its_path_and_row_and_day() -> None:
    [notice] = objects(LANDSAT)
    folded = resolve_event(notice, declared())
    assert (folded.dataset, folded.asset_uri) == ("usgs/landsat-ndvi", LANDSAT["s3_location"])
    assert folded.key == "usgs-landsat:kansas_statewide-028033:8:2025-12-01:v1-0-0"


def test_a_sentinel_2_tile_is_work_for_its_tile_and_day() -> None:
    first, second = (resolve_event(notice, declared()) for notice in objects(LEVEL_2))
    assert first.key == "esa-sentinel-2:kansas_statewide-14sqh:none:2025-12-03:v1-0-0"
    assert second.key == "esa-sentinel-2:kansas_statewide-14sqj:none:2025-12-03:v1-0-0"


@pytest.mark.parametrize("name", [f"{PRODUCT}_MTL.json", f"{PRODUCT}_SR_B4.TIF", "qi/deeper.xml"])
def test_an_object_of_the_folder_stands_for_the_folder(name: str) -> None:
    folded = landsat(name, sequencer="01", version_id="v1")
    assert (folded.object_key, folded.key) == (FOLDER, landsat().key)
    assert (folded.etag, folded.size, folded.version_id, folded.sequencer) == (None, None, None, None)


def test_the_size_of_one_object_is_not_that_of_the_folder() -> None:
    assert landsat(f"{PRODUCT}_SR_B4.TIF", size=10**12).size is None


@pytest.mark.parametrize(
    ("name", "change", "means"),
    [
        (f"{PRODUCT}_MTL.json", "deleted", "deleted"),
        (f"{PRODUCT}_MTL.json", "purged", "deleted"),
        (f"{PRODUCT}_MTL.xml", "deleted", "deleted"),
        (f"{PRODUCT}_MTL.txt", "deleted", "created"),
        (f"{PRODUCT}_thumb_small.jpeg", "deleted", "created"),
    ],
)
def test_a_scene_is_gone_with_the_object_that_describes_it(name: str, change: str, means: str) -> None:
    assert landsat(name, change=change).change == means


@pytest.mark.parametrize(
    "document",
    [
        changed(LANDSAT, "s3_location", LANDSAT["s3_location"].replace("level-2", "level-1")),  # no declared prefix
        {
            "landsat_product_id": PRODUCT.replace("028033", "001005"),  # far away
            "s3_location": LANDSAT["s3_location"].replace("028033", "001005").replace("028/033", "001/005"),
        },
        changed(LEVEL_2, "tiles", []),  # a product, not a tile
    ],
)
def test_what_a_provider_announces_in_vain_is_counted_and_no_dead_letter(document: dict[str, Any]) -> None:
    [notice] = objects(document)
    with pytest.raises(NoticeUnwanted):
        resolve_event(notice, declared())
    read = read_message(Message(dumps(document)), declared())
    assert (read.events, read.refusal, read.unwanted) == ((), None, 1)


def test_the_wanted_tile_of_a_message_is_taken_without_the_others() -> None:
    elsewhere = [{"path": "tiles/34/L/BP/2022/4/1/0"}, *LEVEL_2["tiles"][:1]]
    read = read_message(Message(dumps(changed(LEVEL_2, "tiles", elsewhere))), declared())
    assert ([one.object_key for one in read.events], read.refusal, read.unwanted) == ([TILE], None, 1)


def test_what_lies_in_a_bucket_of_nobody_is_refused_as_before() -> None:
    with pytest.raises(LocationUndeclared) as refused:
        event(bucket="somebody-elses", object_key=FOLDER)
    assert not isinstance(refused.value, NoticeUnwanted)


def test_a_product_processed_again_replaces_the_earlier_one() -> None:
    again = FOLDER.replace("20251203", "20251210")
    other_day = FOLDER.replace("20251201", "20251130")
    events = [
        event(bucket="usgs-landsat", object_key=key, identity=mark * 64, event_time=NOON)
        for mark, key in (("a", again), ("b", FOLDER), ("c", other_day))
    ]
    assert {one.object_key for one in newest_per_object(events)} == {again, other_day}
    assert newest_per_object(events) == newest_per_object(events[::-1])
