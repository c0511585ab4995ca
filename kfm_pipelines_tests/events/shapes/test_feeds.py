"""Providers' feeds: NEXRAD chunks, Landsat scenes, Sentinel products; a place, a time, and the body as identity."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events import ObjectNotice
from kfm_pipelines.events.identity import feed_identities
from kfm_pipelines_tests.fixtures.events.changes import changed
from kfm_pipelines_tests.fixtures.events.messages import LANDSAT, NEXRAD, SENTINEL_1, SENTINEL_2
from kfm_pipelines_tests.fixtures.events.notices import objects

FEEDS = [NEXRAD, LANDSAT, SENTINEL_1, changed(SENTINEL_2, "tiles", [])]


def at(*numbers: int) -> datetime:
    return datetime(*numbers, tzinfo=UTC)  # type: ignore[misc, arg-type]


def times(notice: ObjectNotice) -> tuple[datetime | None, ...]:
    return notice.event_time, notice.granule_start, notice.granule_end


def test_nexrad_times_without_offset_are_utc() -> None:
    (notice,) = objects(NEXRAD)
    assert notice.asset_uri == "s3://unidata-nexrad-level2-chunks/KTWX/117/20251204-031500-001-S"
    assert times(notice) == (at(2025, 12, 4, 3, 15), None, None)
    assert objects(NEXRAD | {"DateTime": "2025-12-03T21:15:00-06:00"})[0].event_time == notice.event_time


def test_nexrad_keys_are_taken_as_written() -> None:
    assert objects(NEXRAD | {"Key": "a%2Fb+c"})[0].object_key == "a%2Fb+c"


def test_a_landsat_scene_covers_the_day_it_was_taken_and_dates_from_its_processing() -> None:
    (notice,) = objects(LANDSAT)
    assert notice.asset_uri == LANDSAT["s3_location"]
    assert times(notice) == (at(2025, 12, 3), at(2025, 12, 1), at(2025, 12, 1, 23, 59, 59))


def test_another_landsat_collection_is_another_major_version() -> None:
    with pytest.raises(ContractBroken, match=r"collection '03' is another major version; this pipeline reads 2\.x"):
        objects(LANDSAT | {"landsat_product_id": "LC09_L2SP_028033_20251201_20251203_03_T1"})


def test_a_sentinel_1_product_is_a_folder_and_belongs_to_where_it_starts() -> None:
    (notice,) = objects(SENTINEL_1)
    assert notice.asset_uri == f"s3://sentinel-s1-l1c/{SENTINEL_1['path']}/"
    assert times(notice) == (at(2025, 12, 4, 2, 48, 9, 123000), at(2025, 12, 4, 0, 30, 15), None)


def test_every_tile_of_a_sentinel_2_product_is_an_event() -> None:
    first, second = objects(SENTINEL_2)
    assert first.asset_uri == "s3://sentinel-s2-l1c/tiles/14/S/QH/2025/12/3/0/"
    assert second.asset_uri == "s3://sentinel-s2-l1c/tiles/14/S/QJ/2025/12/3/0/"
    assert times(second) == (at(2025, 12, 3, 20, 31, 12, 500000), at(2025, 12, 3, 17, 24, 41), None)
    assert [first.identity, second.identity] == feed_identities(SENTINEL_2, 2)


@pytest.mark.parametrize("tiles", [..., []])
def test_a_sentinel_2_product_without_tiles_is_one_event(tiles: object) -> None:
    document = changed(SENTINEL_2, "tiles", tiles)
    (notice,) = objects(document)
    assert notice.asset_uri == f"s3://sentinel-s2-l1c/{SENTINEL_2['path']}/"
    assert notice.granule_start == at(2025, 12, 3, 17, 16, 29, 24000)
    assert [notice.identity] == feed_identities(document, 1)


def test_a_tile_without_a_time_has_that_of_its_product() -> None:
    first, _ = objects(changed(SENTINEL_2, "tiles.0.timestamp", ...))
    assert first.granule_start == at(2025, 12, 3, 17, 16, 29, 24000)


def test_the_level_of_a_sentinel_2_product_names_its_bucket() -> None:
    name = str(SENTINEL_2["name"]).replace("MSIL1C", "MSIL2A")
    assert {notice.bucket for notice in objects(SENTINEL_2 | {"name": name})} == {"sentinel-s2-l2a"}


@pytest.mark.parametrize(
    ("left_out", "instant"),
    [
        (["s3Ingestion"], at(2025, 12, 4, 2, 11, 30)),
        (["s3Ingestion", "sciHubIngestion"], at(2025, 12, 4, 0, 30, 15)),
    ],
)
def test_a_product_dates_from_the_best_time_it_gives(left_out: list[str], instant: datetime) -> None:
    document = {name: value for name, value in SENTINEL_1.items() if name not in left_out}
    assert objects(document)[0].event_time == instant


@pytest.mark.parametrize("document", FEEDS)
def test_the_body_is_the_identity_whatever_the_order_of_its_fields(document: dict[str, Any]) -> None:
    (notice,) = objects(document)
    assert [notice.identity] == feed_identities(document, 1)
    assert objects(dict(reversed(document.items()))) == (notice,)
    assert objects(document | {"newer": 1})[0].identity != notice.identity
    assert (notice.etag, notice.version_id, notice.size, notice.sequencer) == (None, None, None, None)


@pytest.mark.parametrize("document", FEEDS)
@pytest.mark.parametrize("number", [2**53, -(2**53), 10**99], ids=["above", "below", "far"])
def test_a_body_without_canonical_form_is_refused(document: dict[str, Any], number: int) -> None:
    with pytest.raises(ContractBroken, match=r"number beyond 2\^53, which has no canonical form"):
        objects(document | {"newer": {"deep": [number]}})


@pytest.mark.parametrize(
    ("document", "path", "value", "reason"),
    [
        (NEXRAD, "Key", ..., "'Key' is a required property"),
        (NEXRAD, "Key", "a/../b", "has a . or .. segment"),
        (NEXRAD, "DateTime", "20251204", "DateTime: .* is not an RFC 3339 timestamp"),
        (NEXRAD, "DateTime", "2025-02-30T00:00:00", "DateTime: .* is not a valid time"),
        (NEXRAD, "S3Bucket", "s3://x", "S3Bucket must be a bucket name"),
        (LANDSAT, "landsat_product_id", "LC09", "landsat_product_id must be a Collection 2 product id"),
        (LANDSAT, "landsat_product_id", 9, "landsat_product_id must be a Collection 2 product id .* not 9"),
        (
            LANDSAT,
            "landsat_product_id",
            "LC09_L2SP_028033_20251301_20251203_02_T1",
            "'2025-13-01T.* is not a valid time",
        ),
        (
            LANDSAT,
            "landsat_product_id",
            "LC09_L2SP_028033_20251201_00000000_02_T1",
            "'0000-00-00T.* is not a valid time",
        ),
        (LANDSAT, "s3_location", "s3://usgs-landsat/scene", "must end in /"),
        (LANDSAT, "s3_location", "s3://usgs-landsat//scene/", "no empty path segment"),
        (LANDSAT, "s3_location", "s3://usgs-landsat/", "must end in /"),
        (LANDSAT, "s3_location", "s3://usgs-landsat/../scene/", "has a . or .. segment"),
        (LANDSAT, "s3_location", "s3://usgs-landsat/scene/?x=/", "no query"),
        (LANDSAT, "s3_location", "file:///etc/", "s3_location must be s3://bucket/key"),
        (LANDSAT, "s3_location", "https://usgs-landsat/scene/", "s3_location must be s3://bucket/key"),
        (SENTINEL_1, "path", "", "path must be a folder in the bucket"),
        (SENTINEL_1, "path", "/GRD/2025", "no empty path segment"),
        (SENTINEL_1, "path", "GRD/../2025", "has a . or .. segment"),
        (SENTINEL_1, "path", "GRD\x1b[31m", "has control characters"),
        (SENTINEL_1, "path", "GRD\\2025", "has a backslash"),
        (SENTINEL_1, "startTime", ..., "'startTime' is a required property"),
        (SENTINEL_1, "id", "S1A_\n", "id must be a Sentinel-1 product id"),
        (SENTINEL_2, "name", "S2B_MSIL3A_20251203", "name must be the name of a Level-1C or Level-2A product"),
        (SENTINEL_2, "timestamp", "today", "timestamp: 'today' is not an RFC 3339"),
        (SENTINEL_2, "tiles", {}, "tiles must be a list, not an object"),
        (SENTINEL_2, "tiles.1", 5, r"tiles\[1\] must be an object, not 5"),
        (SENTINEL_2, "tiles.1.path", ..., r"tiles\[1\]: 'path' is a required property"),
        (SENTINEL_2, "tiles.1.path", "..", "has a . or .. segment"),
    ],
)
def test_a_broken_message_is_one_sentence(document: dict[str, Any], path: str, value: object, reason: str) -> None:
    with pytest.raises(ContractBroken, match=reason) as refusal:
        objects(changed(document, path, value))
    assert str(refusal.value).isprintable()
