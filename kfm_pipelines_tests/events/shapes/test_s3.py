"""S3 events in every shape give the same notices, and broken ones are refused by name."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import ContractBroken, ShapeUnknown
from kfm_pipelines.events import Change
from kfm_pipelines.events.identity import s3_object_identity, s3_removal_identity
from kfm_pipelines.producer.messages import s3_envelope, s3_notification
from kfm_pipelines_tests.fixtures.aws.messages import s3_removal
from kfm_pipelines_tests.fixtures.events.changes import changed
from kfm_pipelines_tests.fixtures.events.messages import (
    EVENT_ID,
    EVENTBRIDGE,
    EVENTBRIDGE_REMOVAL,
    S3_ENVELOPE,
    eventbridge,
)
from kfm_pipelines_tests.fixtures.events.notices import NOON, objects

# What check_object_key lets through: no control characters, no backslash, no dot segments, at most 1024 bytes.
object_keys = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"], exclude_characters="\\"),
    min_size=1,
    max_size=200,
).filter(lambda key: not {".", ".."} & set(key.split("/")))


def message(key: str = "a/b.parquet", **changes: Any) -> dict[str, Any]:
    return s3_notification("kfm-ingest", key, "abc", 10, None, NOON) | changes


def changed_record(path: str, value: object) -> dict[str, Any]:
    """A good message with one field of its record replaced, or taken out when the value is `...`."""
    return changed(message(), f"Records.0.{path}", value)


def test_every_field_of_a_record_is_in_the_notice() -> None:
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
    document = changed_record("s3.object.key", "a%252Fb+c%2B.parquet")
    assert objects(document)[0].object_key == "a%2Fb c+.parquet"


def test_several_records_are_several_notices_in_order() -> None:
    document = {"Records": [*message("one")["Records"], *message("two")["Records"]]}
    assert [notice.object_key for notice in objects(document)] == ["one", "two"]


@pytest.mark.parametrize("version_id", [None, "", "null"])
def test_an_unversioned_object_has_no_version(version_id: str | None) -> None:
    document = changed_record("s3.object.versionId", version_id)
    assert objects(document) == objects(message())
    assert objects(document)[0].version_id is None


def test_an_absent_etag_is_none_and_not_empty() -> None:
    without = objects(changed_record("s3.object.eTag", ...))
    assert without == objects(changed_record("s3.object.eTag", ""))
    assert without[0].etag is None


@pytest.mark.parametrize("sequencer", [None, ""])
def test_an_empty_sequencer_is_none(sequencer: str | None) -> None:
    assert objects(changed_record("s3.object.sequencer", sequencer)) == objects(message())


def test_a_size_is_a_whole_number_however_json_writes_it() -> None:
    (notice,) = objects(changed_record("s3.object.size", 10.0))
    assert isinstance(notice.size, int)
    assert (notice,) == objects(message())


def test_the_event_time_does_not_change_the_identity() -> None:
    later = changed_record("eventTime", "2025-12-05T00:00:00Z")
    (first,), (second,) = objects(message()), objects(later)
    assert second.event_time == datetime(2025, 12, 5, tzinfo=UTC) != first.event_time
    assert first.identity == second.identity


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.99", "2"])
def test_any_minor_version_of_2_and_unknown_fields_pass(version: str) -> None:
    document = changed_record("eventVersion", version) | {"new": 1}
    document["Records"][0]["s3"]["object"]["newer"] = {"still": "fine"}
    assert len(objects(document)) == 1


@pytest.mark.parametrize("version", ["3.0", "1.9", "10.0", "20.1"])
def test_another_major_version_is_refused_by_name(version: str) -> None:
    document = changed_record("eventVersion", version)
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
        objects(changed_record(path, value))
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("records", [[], {}, None, "x", [1], [[]]])
def test_records_must_be_a_list_of_objects(records: object) -> None:
    with pytest.raises(ContractBroken, match="Records"):
        objects({"Records": records})


def test_one_bad_record_refuses_the_whole_message() -> None:
    document = message()
    document["Records"] += changed_record("s3.object.size", "ten")["Records"]
    with pytest.raises(ContractBroken, match=r"Records\[1\]"):
        objects(document)


# Form-encoded in a notification, as it is elsewhere: a reader that decodes once too often or too seldom is found out.
KEY = "usgs/100% a+b%2F ç.parquet"


def created(version_id: str | None) -> list[dict[str, Any]]:
    stored = {"etag": "abc", "size": 10, "version-id": version_id, "sequencer": "00AB"}
    return [
        s3_notification("kfm-ingest", KEY, "abc", 10, version_id, NOON, "00AB"),
        eventbridge("kfm-ingest", KEY, stored),
        s3_envelope("kfm-ingest", KEY, "abc", 10, version_id, NOON, EVENT_ID) | {"sequencer": "00AB"},
    ]


def removed(event_name: str, deletion_type: str, version_id: str | None) -> list[dict[str, Any]]:
    envelope = s3_envelope("kfm-ingest", KEY, None, 0, version_id, NOON, EVENT_ID)
    del envelope["size"]
    stored = {"version-id": version_id, "sequencer": "00AC"}
    return [
        s3_removal("kfm-ingest", KEY, version_id, NOON, "00AC", event_name),
        eventbridge("kfm-ingest", KEY, stored, "Object Deleted", deletion_type),
        envelope | {"source": f"s3:{event_name}", "sequencer": "00AC"},
    ]


@pytest.mark.parametrize("version_id", ["v1", None])
def test_every_shape_gives_the_same_notice_of_a_created_object(version_id: str | None) -> None:
    notices = [objects(document)[0] for document in created(version_id)]
    assert [notice.shape for notice in notices] == ["s3-notification", "eventbridge", "s3-envelope"]
    for notice in notices:
        assert (notice.bucket, notice.object_key, notice.change) == ("kfm-ingest", KEY, "created")
        assert (notice.etag, notice.size, notice.version_id, notice.sequencer) == ("abc", 10, version_id, "00AB")
        assert (notice.event_time, notice.dataset, notice.priority) == (NOON, None, "normal")
        assert notice.identity == s3_object_identity("kfm-ingest", KEY, "abc", version_id, 10)


@pytest.mark.parametrize(
    ("event_name", "deletion_type", "version_id", "change"),
    [
        ("ObjectRemoved:DeleteMarkerCreated", "Delete Marker Created", "m1", "deleted"),
        ("ObjectRemoved:DeleteMarkerCreated", "Delete Marker Created", None, "deleted"),
        ("LifecycleExpiration:DeleteMarkerCreated", "Delete Marker Created", "m1", "deleted"),
        ("ObjectRemoved:Delete", "Permanently Deleted", None, "deleted"),
        ("ObjectRemoved:Delete", "Permanently Deleted", "null", "deleted"),
        ("ObjectRemoved:Delete", "Permanently Deleted", "v1", "purged"),
        ("LifecycleExpiration:Delete", "Permanently Deleted", "v1", "purged"),
        ("LifecycleExpiration:Delete", "Permanently Deleted", "", "deleted"),
    ],
)
def test_every_shape_gives_the_same_notice_of_a_removed_object(
    event_name: str, deletion_type: str, version_id: str | None, change: Change
) -> None:
    stated = version_id if version_id in ("v1", "m1") else None
    for document in removed(event_name, deletion_type, version_id):
        (notice,) = objects(document)
        assert (notice.object_key, notice.change) == (KEY, change)
        assert (notice.etag, notice.size, notice.version_id, notice.sequencer) == (None, None, stated, "00AC")
        assert notice.identity == s3_removal_identity("kfm-ingest", KEY, stated, "00AC", NOON)


def test_a_removal_has_no_content_even_if_s3_describes_the_marker() -> None:
    document = s3_removal("kfm-ingest", KEY, "m1", NOON, "00AC", "ObjectRemoved:DeleteMarkerCreated")
    stored = document["Records"][0]["s3"]["object"]
    described = changed(document, "Records.0.s3.object", stored | {"eTag": "d41d8", "size": 7})
    assert objects(described) == objects(document)


def test_an_empty_object_has_content_all_the_same() -> None:
    (notice,) = objects(s3_notification("kfm-ingest", KEY, "abc", 0, None, NOON))
    assert (notice.change, notice.size, notice.etag) == ("created", 0, "abc")
    assert notice.identity == s3_object_identity("kfm-ingest", KEY, "abc", None, 0)


@pytest.mark.parametrize(("shape", "path"), [(0, "Records.0.s3.object.size"), (1, "detail.object.size"), (2, "size")])
def test_only_a_removal_may_leave_out_the_size(shape: int, path: str) -> None:
    with pytest.raises(ContractBroken, match="'size' is a required property"):
        objects(changed(created("v1")[shape], path, ...))


@pytest.mark.parametrize(
    "name", ["ObjectRestore:Completed", "ObjectRemoved:Other", "ObjectRemoved:", "Delete", "ObjectTagging:Put", ""]
)
def test_other_s3_events_are_refused_by_name(name: str) -> None:
    notification = changed(created(None)[0], "Records.0.eventName", name)
    for document in (changed(notification, "Records.0.s3", ...), {"source": f"s3:{name}"}):
        with pytest.raises(ShapeUnknown, match=f"S3 event '{name}' is not handled"):
            objects(document)


@pytest.mark.parametrize(
    ("kind", "source"),
    [("Object Restored", "aws.s3"), ("Object Created", "aws.ec2"), ("Scheduled Event", "aws.events")],
)
def test_other_eventbridge_events_are_refused_by_name(kind: str, source: str) -> None:
    with pytest.raises(ShapeUnknown, match=f"EventBridge event '{kind}' from '{source}' is not handled"):
        objects({"detail-type": kind, "source": source, "version": "0", "detail": {}})


@pytest.mark.parametrize(
    ("document", "path", "reads"),
    [(EVENTBRIDGE, "version", "0.x"), (EVENTBRIDGE, "detail.version", "0.x"), (S3_ENVELOPE, "schema_version", "1.x")],
)
def test_newer_minor_versions_pass_and_major_ones_do_not(document: dict[str, Any], path: str, reads: str) -> None:
    assert objects(changed(document, path, f"{reads[0]}.9")) == objects(document)
    with pytest.raises(ContractBroken, match=f"{path} '7.0' is another major version; this pipeline reads {reads}"):
        objects(changed(document, path, "7.0"))


def test_what_the_envelope_calls_its_idempotency_key_is_not_looked_at() -> None:
    for stated in ("<sha256 over bucket,key>", "0" * 64, None, 5):
        assert objects(S3_ENVELOPE | {"idempotency_key": stated}) == objects(S3_ENVELOPE)


@pytest.mark.parametrize(
    ("document", "path", "value", "reason"),
    [
        (EVENTBRIDGE, "detail", ..., "'detail' is a required property"),
        (EVENTBRIDGE, "time", "2025-12-04 12:00", "time: .* is not an RFC 3339 timestamp"),
        (EVENTBRIDGE, "source", ..., "'source' is a required property"),
        (EVENTBRIDGE, "detail.object.key", "a/../b", "has a . or .. segment"),
        (EVENTBRIDGE, "detail.object.key", "a\nb", "has control characters"),
        (EVENTBRIDGE, "detail.object.sequencer", "xyz", "sequencer must be hexadecimal text"),
        (EVENTBRIDGE_REMOVAL, "detail.deletion-type", ..., "'deletion-type' is a required property"),
        (EVENTBRIDGE_REMOVAL, "detail.deletion-type", "Gone", "deletion-type must be Permanently Deleted or"),
        (S3_ENVELOPE, "bucket", "a/b", "bucket must be a bucket name"),
        (S3_ENVELOPE, "key", "../up", "has a . or .. segment"),
        (S3_ENVELOPE, "key", "a\\b", "has a backslash"),
        (S3_ENVELOPE, "event_time", ..., "'event_time' is a required property"),
        (S3_ENVELOPE, "size", -1, "size must be a whole number of bytes, not -1"),
    ],
)
def test_a_broken_message_is_one_sentence(document: dict[str, Any], path: str, value: object, reason: str) -> None:
    with pytest.raises(ContractBroken, match=reason) as refusal:
        objects(changed(document, path, value))
    assert str(refusal.value).isprintable()
