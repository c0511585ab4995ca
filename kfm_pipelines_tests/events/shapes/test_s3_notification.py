"""S3 notifications 2.x: one notice per record, keys decoded once, other kinds and versions refused by name."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events.identity import s3_object_identity
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines_tests.fixtures.events import changes as changing
from kfm_pipelines_tests.fixtures.events.notices import NOON, objects

# What check_object_key lets through: no control characters, no backslash, no dot segments, at most 1024 bytes.
object_keys = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"], exclude_characters="\\"),
    min_size=1,
    max_size=200,
).filter(lambda key: not {".", ".."} & set(key.split("/")))


def message(key: str = "a/b.parquet", **changes: Any) -> dict[str, Any]:
    return s3_notification("kfm-ingest", key, "abc", 10, None, NOON) | changes


def changed(path: str, value: object) -> dict[str, Any]:
    """A good message with one field of its record replaced, or taken out when the value is `...`."""
    return changing.changed(message(), f"Records.0.{path}", value)


def test_everything_a_record_says_is_in_the_notice() -> None:
    (notice,) = objects(s3_notification("kfm-ingest", "a b/ç.parquet", '"e1"', 10, "v1", NOON, "0055AE"))
    assert (notice.bucket, notice.object_key, notice.asset_uri) == (
        "kfm-ingest",
        "a b/ç.parquet",
        "s3://kfm-ingest/a b/ç.parquet",
    )
    assert (notice.etag, notice.version_id, notice.size, notice.sequencer) == ("e1", "v1", 10, "0055AE")
    assert (notice.event_time, notice.dataset, notice.priority) == (NOON, None, "normal")
    assert notice.identity == s3_object_identity("kfm-ingest", "a b/ç.parquet", "e1", "v1", 10)


@given(object_keys)
@settings(deadline=None)
def test_any_object_key_survives_the_journey(key: str) -> None:
    (notice,) = objects(message(key))
    assert notice.object_key == key


def test_keys_are_decoded_exactly_once() -> None:
    document = changed("s3.object.key", "a%252Fb+c%2B.parquet")
    assert objects(document)[0].object_key == "a%2Fb c+.parquet"


def test_several_records_are_several_notices_in_order() -> None:
    document = {"Records": [*message("one")["Records"], *message("two")["Records"]]}
    assert [notice.object_key for notice in objects(document)] == ["one", "two"]


@pytest.mark.parametrize("version_id", [None, "", "null"])
def test_an_unversioned_object_has_no_version(version_id: str | None) -> None:
    document = changed("s3.object.versionId", version_id)
    assert objects(document) == objects(message())
    assert objects(document)[0].version_id is None


def test_an_absent_etag_is_none_and_not_empty() -> None:
    without = objects(changed("s3.object.eTag", ...))
    assert without == objects(changed("s3.object.eTag", ""))
    assert without[0].etag is None


@pytest.mark.parametrize("sequencer", [None, ""])
def test_an_empty_sequencer_is_none(sequencer: str | None) -> None:
    assert objects(changed("s3.object.sequencer", sequencer)) == objects(message())


def test_a_size_is_a_whole_number_however_json_writes_it() -> None:
    (notice,) = objects(changed("s3.object.size", 10.0))
    assert isinstance(notice.size, int)
    assert (notice,) == objects(message())


def test_the_event_time_does_not_change_the_identity() -> None:
    later = changed("eventTime", "2025-12-05T00:00:00Z")
    (first,), (second,) = objects(message()), objects(later)
    assert second.event_time == datetime(2025, 12, 5, tzinfo=UTC) != first.event_time
    assert first.identity == second.identity


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.99", "2"])
def test_any_minor_version_of_2_and_unknown_fields_pass(version: str) -> None:
    document = changed("eventVersion", version) | {"new": 1}
    document["Records"][0]["s3"]["object"]["newer"] = {"still": "fine"}
    assert len(objects(document)) == 1


@pytest.mark.parametrize("version", ["3.0", "1.9", "10.0", "20.1"])
def test_another_major_version_is_refused_by_name(version: str) -> None:
    document = changed("eventVersion", version)
    del document["Records"][0]["s3"]
    with pytest.raises(ContractBroken, match=rf"eventVersion '{version}'.*reads 2.x"):
        objects(document)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("s3", ..., r"Records\[0\]: 's3' is a required property"),
        ("s3.object.size", ..., r"Records\[0\].s3.object: 'size' is a required property"),
        ("s3.object.size", "10", r"Records\[0\].s3.object.size must be a whole number of bytes, not '10'"),
        ("s3.object.size", -1, r"size must be a whole number of bytes, not -1"),
        ("s3.object.size", 2**53, r"size must be a whole number of bytes"),
        ("s3.object.size", True, r"size must be a whole number of bytes, not True"),
        ("s3.object.key", "", r"key must be a form-encoded object key"),
        ("s3.object.key", "%ff", r"is not form-encoded UTF-8"),
        ("s3.object.key", "a%00b", r"control characters"),
        ("s3.object.key", "a%0Ab", r"control characters"),
        ("s3.object.key", "a%5Cb", r"has a backslash"),
        ("s3.object.key", "a%1B[31mb", r"control characters"),
        ("s3.object.key", "usgs/..%2Fsecret", r"\. or \.\. segment"),
        ("s3.object.key", "x" * 1025, r"1 to 1024 bytes"),
        ("s3.object.eTag", "a\n", r"eTag must be an ETag"),
        ("s3.object.versionId", "a\x00", r"versionId must be a version id"),
        ("s3.object.sequencer", "00G", r"sequencer must be hexadecimal"),
        ("s3.bucket.name", "a/b", r"name must be a bucket name"),
        ("s3.bucket.name", "bucket\n", r"name must be a bucket name"),
        ("s3.bucket", [], r"bucket must be an object, not a list"),
        ("eventTime", "2025-12-04T03:14:15", r"eventTime: '2025-12-04T03:14:15' is not an RFC 3339 timestamp"),
        ("eventTime", 1764818055, r"eventTime must be an RFC 3339 timestamp, not 1764818055"),
        ("eventSource", "aws:ses", r"eventSource must be 'aws:s3', not 'aws:ses'"),
        ("eventVersion", 2.1, r"eventVersion must be a version 2.x, not 2.1"),
        ("eventVersion", "two", r"eventVersion must be a version 2.x, not 'two'"),
        ("eventName", ..., r"'eventName' is a required property"),
    ],
)
def test_a_broken_record_is_one_sentence_naming_the_field(path: str, value: object, reason: str) -> None:
    with pytest.raises(ContractBroken, match=reason) as refusal:
        objects(changed(path, value))
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("records", [[], {}, None, "x", [1], [[]]])
def test_records_must_be_a_list_of_objects(records: object) -> None:
    with pytest.raises(ContractBroken, match="Records"):
        objects({"Records": records})


def test_one_bad_record_refuses_the_whole_message() -> None:
    document = message()
    document["Records"] += changed("s3.object.size", "ten")["Records"]
    with pytest.raises(ContractBroken, match=r"Records\[1\]"):
        objects(document)
