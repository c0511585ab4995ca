"""Source objects are taken only if they are what their event promised."""

import dataclasses
from typing import Any

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.errors import IntegrityBroken, KfmError, ObjectMissing
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.stages.compute.inputs import fetch
from kfm_pipelines_tests.fixtures.events.notices import event

FIRST, SECOND = b"first", b"second upload"
ENOUGH = 1000


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
    assert fetch(first, len(FIRST)).data == FIRST
    with pytest.raises(IntegrityBroken, match="has 5 bytes; the dataset takes at most 4"):
        fetch(first, len(FIRST) - 1)
