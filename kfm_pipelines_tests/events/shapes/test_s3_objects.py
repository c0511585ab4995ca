"""What S3 says reaches us as a notification, through EventBridge and in our own envelope: one meaning, one identity."""

from typing import Any

import pytest

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
def test_every_road_says_the_same_about_a_created_object(version_id: str | None) -> None:
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
def test_every_road_says_the_same_about_a_removed_object(
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


@pytest.mark.parametrize(("road", "path"), [(0, "Records.0.s3.object.size"), (1, "detail.object.size"), (2, "size")])
def test_only_a_removal_may_leave_out_the_size(road: int, path: str) -> None:
    with pytest.raises(ContractBroken, match="'size' is a required property"):
        objects(changed(created("v1")[road], path, ...))


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
