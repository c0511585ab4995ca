"""Real messages from their senders, kept outside the checkout."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kfm_pipelines.errors import LocationUndeclared
from kfm_pipelines.events import PayloadNotice, normalise, resolve_event
from kfm_pipelines.events.identity import s3_object_identity
from kfm_pipelines_tests.fixtures.events.notices import declared, objects

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="real sample messages are not on this machine")


def read(name: str) -> object:
    return json.loads((SAMPLES / f"{name}.json").read_bytes())


def test_an_s3_notification_wrapped_by_sns() -> None:
    """It is about a fragment of a radar's volume, which no dataset takes (ADR 0037)."""
    (notice,) = objects(read("nexrad-level2-sns-wrapped-s3"))
    assert notice.asset_uri == "s3://unidata-nexrad-level2-chunks/KDAX/734/20151228-200051-001-S"
    assert (notice.size, notice.sequencer) == (11714, "00568194F4F94A44B5")
    with pytest.raises(LocationUndeclared, match="is not under the bucket and prefix of any declared dataset"):
        resolve_event(notice, declared())


def test_an_auto_update_message() -> None:
    (notice,) = objects(read("auto-update-v1"))
    assert (notice.dataset, notice.etag, notice.priority) == ("usgs/streamflow", "a1b2c3", "high")


def test_the_test_event_of_s3() -> None:
    assert objects(read("s3-test-event")) == ()


def test_an_s3_envelope() -> None:
    (notice,) = objects(read("s3-envelope"))
    key = "datasets/soil/2025/12/06/file.parquet"
    assert (notice.asset_uri, notice.change) == (f"s3://kfm-ingest/{key}", "created")
    assert notice.identity == s3_object_identity("kfm-ingest", key, "abc123", "3Lg..", 1048576)


def test_a_fifo_envelope_whose_source_nobody_listens_to() -> None:
    (notice,) = normalise((SAMPLES / "fifo-envelope.json").read_bytes())
    assert isinstance(notice, PayloadNotice)
    assert notice.payload == {"collection": "landsat", "tile": "p32r29"}
    with pytest.raises(LocationUndeclared, match=r"kfm\.remote-sensing\.landsat-refresh"):
        resolve_event(notice, declared())


def test_a_nexrad_chunk() -> None:
    (notice,) = objects(read("nexrad-level2-filterable"))
    assert notice.asset_uri == "s3://unidata-nexrad-level2-chunks/KDFX/602/20190510-143508-028-I"
    assert notice.event_time == datetime(2019, 5, 10, 14, 35, 8, tzinfo=UTC)


def test_a_landsat_scene() -> None:
    (notice,) = objects(read("landsat-c2-scene"))
    assert notice.asset_uri.endswith("/2023/001/005/LC08_L1TP_001005_20230704_20230717_02_T1/")
    assert (notice.granule_start, notice.event_time) == (
        datetime(2023, 7, 4, tzinfo=UTC),
        datetime(2023, 7, 17, tzinfo=UTC),
    )
