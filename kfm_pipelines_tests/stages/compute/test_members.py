"""Source objects are taken only if they are what their event promised."""

import dataclasses
from typing import Any

import pytest
import shapely

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Input
from kfm_pipelines.declarations.scenes import Scene
from kfm_pipelines.errors import IntegrityBroken, KfmError, ObjectMissing
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.producer.samples.landsat import landsat_folder, landsat_product
from kfm_pipelines.scenes.facts import MAX_DOCUMENT_BYTES
from kfm_pipelines.stages.compute.members import fetch, fetch_announced, is_folder_unchanged
from kfm_pipelines.stores import open_store
from kfm_pipelines_tests.fixtures.events.notices import declared, event
from kfm_pipelines_tests.fixtures.scenes import START, kansas

NOWHERE = open_store("file:///nowhere")  # releases are in the store, objects are not
FIRST, SECOND = b"first", b"second upload"


def at_most(max_bytes: int) -> Input:
    return declared()["usgs/streamflow"].input.model_copy(update={"max_bytes": max_bytes})


ENOUGH = at_most(1000)


@pytest.fixture
def first(bucket: str) -> IngestEvent:
    """The first version of an object that has been replaced since."""
    described = dataclasses.replace(event(), bucket=bucket)
    answer = s3_client().put_object(Bucket=bucket, Key=described.object_key, Body=FIRST)
    s3_client().put_object(Bucket=bucket, Key=described.object_key, Body=SECOND)
    return dataclasses.replace(
        described, etag=answer["ETag"].strip('"'), version_id=answer["VersionId"], size=len(FIRST)
    )


def test_the_promised_version_is_taken_not_the_latest(first: IngestEvent) -> None:
    assert fetch(first, ENOUGH).data == FIRST


def test_an_event_that_promises_nothing_gets_what_is_there(first: IngestEvent) -> None:
    bare = dataclasses.replace(first, etag=None, version_id=None, size=None)
    assert fetch(bare, ENOUGH).data == SECOND


@pytest.mark.parametrize(
    ("changes", "refusal", "sentence"),
    [
        ({"size": 6}, IntegrityBroken, "has 5 bytes; the event promised 6"),
        ({"size": 0}, IntegrityBroken, "has 5 bytes; the event promised 0"),
        ({"etag": "abc"}, IntegrityBroken, "has ETag [0-9a-f]{32}; the event promised abc"),
        ({"version_id": None}, IntegrityBroken, "has 13 bytes; the event promised 5"),
        ({"version_id": None, "size": None}, IntegrityBroken, "has ETag .*; the event promised"),
        ({"object_key": "usgs/streamflow/none"}, ObjectMissing, "usgs/streamflow/none is not there; upload it again"),
        ({"object_key": "usgs/none", "version_id": None}, ObjectMissing, "usgs/none is not there"),
        ({"bucket": "no-such-bucket-here"}, ObjectMissing, "s3://no-such-bucket-here/.* is not there"),
    ],
)
def test_what_differs_from_the_promise_is_refused(
    first: IngestEvent, changes: dict[str, Any], refusal: type[KfmError], sentence: str
) -> None:
    with pytest.raises(refusal, match=sentence):
        fetch(dataclasses.replace(first, **changes), ENOUGH)


def test_a_deleted_object_is_missing(first: IngestEvent) -> None:
    s3_client().delete_object(Bucket=first.bucket, Key=first.object_key)
    with pytest.raises(ObjectMissing):
        fetch(dataclasses.replace(first, version_id=None), ENOUGH)
    assert fetch(first, ENOUGH).data == FIRST


def test_the_largest_size_passes_and_one_byte_more_does_not(first: IngestEvent) -> None:
    assert fetch(first, at_most(len(FIRST))).data == FIRST
    with pytest.raises(IntegrityBroken, match="has 5 bytes; the dataset takes at most 4"):
        fetch(first, at_most(len(FIRST) - 1))


SCENE = declared()["usgs/landsat-ndvi"]
WITHOUT_INDEX = SCENE.model_copy(update={"scene": Scene(product="landsat-c2-l2")})


def scene_in(bucket: str, *missing: str, **others: bytes) -> IngestEvent:
    """The sample scene without some of its objects, as its folder's event."""
    ours = SCENE.input.model_copy(update={"bucket": bucket, "provider": None})
    for key, data in SAMPLES[SCENE.dataset].objects(START).items():
        if not key.endswith(missing or ("nothing",)):
            s3_client().put_object(Bucket=bucket, Key=key, Body=data)
    for end, data in others.items():
        key = f"{landsat_folder(START)}{landsat_product(START)}_{end}".replace("__", ".")
        s3_client().put_object(Bucket=bucket, Key=key, Body=data)
    return dataclasses.replace(
        event(bucket=SCENE.input.bucket, object_key=landsat_folder(START)), bucket=ours.bucket, etag=None, size=None
    )


def ends(about: IngestEvent, dataset: Dataset, area: Area | None = None) -> list[str]:
    """What is fetched, by the ends of the names."""
    source = dataset.input.model_copy(update={"provider": None})
    fetched = fetch_announced(about, dataset.model_copy(update={"input": source}), lambda: area or kansas(), NOWHERE)
    return sorted(uri.removeprefix(f"{about.asset_uri}{landsat_product(START)}_") for uri in fetched)


def test_only_what_describes_a_scene_is_fetched(bucket: str) -> None:
    assert ends(scene_in(bucket), WITHOUT_INDEX) == ["MTL.json", "SR_stac.json", "thumb_small.jpeg"]


def test_bands_are_fetched_for_an_index_over_the_area_only(bucket: str) -> None:
    about = scene_in(bucket)
    described = ["MTL.json", "SR_stac.json", "thumb_small.jpeg"]
    assert ends(about, SCENE) == sorted([*described, "QA_PIXEL.TIF", "SR_B4.TIF", "SR_B5.TIF"])
    assert ends(about, SCENE, Area("elsewhere", shapely.box(0, 0, 1, 1))) == described


def test_what_is_optional_may_be_missing(bucket: str) -> None:
    about = scene_in(bucket, "_SR_stac.json", "_thumb_small.jpeg")
    assert ends(about, WITHOUT_INDEX) == ["MTL.json"]


def test_xml_is_read_where_json_is_missing(bucket: str) -> None:
    about = scene_in(bucket, "_MTL.json", MTL__xml=b"<LANDSAT_METADATA_FILE/>")
    assert ends(about, WITHOUT_INDEX) == ["MTL.xml", "SR_stac.json", "thumb_small.jpeg"]


@pytest.mark.parametrize("missing", ["_MTL.json", "_SR_B4.TIF"])
def test_what_is_needed_and_missing_is_named(bucket: str, missing: str) -> None:
    with pytest.raises(ObjectMissing, match=f"{missing} is not there; upload it again"):
        ends(scene_in(bucket, missing), SCENE)


def test_a_document_of_a_scene_is_small(bucket: str) -> None:
    about = scene_in(bucket, MTL__json=b" " * (MAX_DOCUMENT_BYTES + 1))
    with pytest.raises(IntegrityBroken, match=f"the dataset takes at most {MAX_DOCUMENT_BYTES}"):
        ends(about, WITHOUT_INDEX)


def test_a_folder_is_unchanged_while_all_its_objects_are_and_none_is_added(bucket: str) -> None:
    about = scene_in(bucket, "_thumb_small.jpeg")
    source = SCENE.input.model_copy(update={"provider": None})
    dataset = WITHOUT_INDEX.model_copy(update={"input": source})
    etags = {uri: one.etag for uri, one in fetch_announced(about, dataset, kansas, NOWHERE).items()}
    assert is_folder_unchanged(about, etags, dataset)
    assert not is_folder_unchanged(about, dict.fromkeys(etags, "other"), dataset)
    scene_in(bucket)  # with its picture
    assert not is_folder_unchanged(about, etags, dataset)
