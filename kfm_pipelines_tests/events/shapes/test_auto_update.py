"""Auto-update v1: the producer names dataset, asset and granule; the asset URI means one S3 object and nothing else."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events.identity import auto_update_identity
from kfm_pipelines.producer.messages import auto_update
from kfm_pipelines_tests.fixtures.events.notices import NOON, objects

URI = "s3://kfm-ingest/usgs/streamflow/f.parquet"
START, END = datetime(2025, 12, 4, 3, tzinfo=UTC), datetime(2025, 12, 4, 3, 59, 59, tzinfo=UTC)


def message(**changes: Any) -> dict[str, Any]:
    document = auto_update("usgs/streamflow", URI, 'W/"a1b2c3"', START, END, NOON, "high") | changes
    return {name: value for name, value in document.items() if value is not ...}


def test_every_field_of_the_message_is_in_the_notice() -> None:
    (notice,) = objects(message())
    assert (notice.dataset, notice.asset_uri, notice.etag, notice.priority) == (
        "usgs/streamflow",
        URI,
        "a1b2c3",
        "high",
    )
    assert (notice.granule_start, notice.granule_end, notice.event_time) == (START, END, NOON)
    assert (notice.version_id, notice.size, notice.sequencer) == (None, None, None)
    assert notice.identity == auto_update_identity("usgs/streamflow", URI, 'W/"a1b2c3"')


def test_identity_takes_the_etag_exactly_as_sent() -> None:
    (weak,) = objects(message())
    (strong,) = objects(message(content_etag='"a1b2c3"'))
    assert weak.etag == strong.etag
    assert weak.identity != strong.identity


def test_granule_and_priority_may_be_left_out() -> None:
    (notice,) = objects(message(granule_start=..., granule_end=..., priority=...))
    assert (notice.granule_start, notice.granule_end, notice.priority) == (None, None, "normal")


@pytest.mark.parametrize("version", ["1", "1.0", "1.7", "1.0.3"])
def test_any_minor_version_of_1_and_unknown_fields_pass(version: str) -> None:
    assert len(objects(message(schema_version=version, new_field=[1]))) == 1


@pytest.mark.parametrize("version", ["2.0", "0.9", "11.0"])
def test_another_major_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(ContractBroken, match=f"schema_version '{version}'.*reads 1.x"):
        objects(message(schema_version=version, event_time=...))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"event_time": ...}, "'event_time' is a required property"),
        ({"dataset": ...}, "'dataset' is a required property"),
        ({"asset_uri": ...}, "'asset_uri' is a required property"),
        ({"content_etag": ...}, "'content_etag' is a required property"),
        ({"schema_version": ...}, "'schema_version' is a required property"),
        ({"schema_version": 1.0}, "schema_version must be a version 1.x, not 1.0"),
        ({"priority": "urgent"}, "priority must be high, normal or low, not 'urgent'"),
        ({"dataset": ["usgs"]}, "dataset must be a dataset name, not a list"),
        ({"content_etag": ""}, "content_etag must be an ETag"),
        ({"content_etag": "a\x00b"}, "content_etag must be an ETag"),
        ({"granule_start": ...}, "'granule_start' is a dependency of 'granule_end'"),
        ({"granule_end": "2025-12-04T03:59:59"}, "granule_end: '2025-12-04T03:59:59' is not an RFC 3339 timestamp"),
        ({"event_time": "yesterday"}, "event_time: 'yesterday' is not an RFC 3339 timestamp"),
    ],
)
def test_a_broken_message_is_one_sentence_naming_the_field(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ContractBroken, match=reason) as refusal:
        objects(message(**changes))
    assert str(refusal.value).startswith("auto-update-v1: ")
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "uri",
    [
        "https://kfm-ingest.s3.amazonaws.com/usgs/f.parquet",
        "file:///etc/passwd",
        "S3://kfm-ingest/f.parquet",
        "s3a://kfm-ingest/f.parquet",
        "s3:/kfm-ingest/f.parquet",
        "kfm-ingest/f.parquet",
        "s3://",
        "s3:///f.parquet",
        "s3://kfm-ingest",
        "s3://kfm-ingest/",
        "s3://kfm-ingest/usgs/",
        "s3://kfm-ingest//f.parquet",
        "s3://kfm-ingest/usgs//f.parquet",
        "s3://user:pass@kfm-ingest/f.parquet",
        "s3://kfm-ingest:443/f.parquet",
        "s3://KFM/f.parquet",
        "s3://kfm-ingest\n/f.parquet",
        "s3://kfm-ingest/usgs/../secret.parquet",
        "s3://kfm-ingest/./f.parquet",
        "s3://kfm-ingest/usgs/..",
        "s3://kfm-ingest/f.parquet?versionId=1",
        "s3://kfm-ingest/f.parquet#x",
        "s3://kfm-ingest/f\u0000.parquet",
        "s3://kfm-ingest/f.parquet\n",
        "s3://kfm-ingest/f\u0085.parquet",
        "s3://kfm-ingest/f\u2028.parquet",
        " s3://kfm-ingest/f.parquet",
        "s3://kfm-ingest/usgs\\..\\secret.parquet",
        "file://kfm-ingest/f.parquet",
        "s3://kfm-ingest/\u001b[31mf.parquet",
        "s3://kfm-ingest/f\r\n.parquet",
        "s3://kfm-ingest/" + "é" * 513,
    ],
)
def test_an_asset_uri_is_s3_bucket_key_and_nothing_else(uri: str) -> None:
    with pytest.raises(ContractBroken, match=r"asset_uri|object key") as refusal:
        objects(message(asset_uri=uri))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("key", ["f", "a b/ç.parquet", "..a/b..", "a%2Fb", "x" * 1024])
def test_other_keys_are_taken_as_written(key: str) -> None:
    assert objects(message(asset_uri=f"s3://kfm-ingest/{key}"))[0].object_key == key
