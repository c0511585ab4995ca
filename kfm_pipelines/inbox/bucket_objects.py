"""Lists what is in the bucket of a dataset, each object as the event that its notice would be."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events import IngestEvent, resolve_events
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.s3 import S3Object, s3_notice

LISTING_SHAPE = "s3-listing"
ListedEvent = tuple[IngestEvent, str]  # with the JSON that is archived in place of a message


def list_events(dataset: Dataset, datasets: Datasets) -> Iterator[ListedEvent]:
    """Yields current object versions, a thousand per request. Skips deleted objects and those whose notices would be
    refused."""
    bucket, prefix = dataset.input.bucket, dataset.input.prefix
    pages = s3_client().get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    with translate_aws_errors(f"listing s3://{bucket}/{prefix}"):
        for page in pages:
            current: list[Any] = [version for version in page.get("Versions", ()) if version["IsLatest"]]
            yield from resolve_objects(bucket, current, datasets)


def resolve_objects(
    bucket: str, objects: Iterable[Any], datasets: Datasets, most: int | None = None
) -> Iterator[ListedEvent]:
    """Takes objects as S3 lists them, and skips those whose notices would be refused. Of an object that is split among
    keys it yields an event for each, or at most so many."""
    for one in objects:
        stored = S3Object(bucket, one["Key"], one.get("ETag"), one.get("VersionId"), one["Size"], None)
        made_at: datetime = one["LastModified"]
        try:
            notice = s3_notice(LISTING_SHAPE, "created", stored, made_at)
            events = resolve_events(notice, datasets, most)
        except MessageRefused:  # its notice would be refused too, but nobody sent one
            continue
        body = _archived(notice)
        yield from ((event, body) for event in events)


def _archived(notice: ObjectNotice) -> str:
    document = {
        "shape": notice.shape,
        "bucket": notice.bucket,
        "key": notice.object_key,
        "etag": notice.etag,
        "version_id": notice.version_id,
        "size": notice.size,
        "last_modified": notice.event_time.isoformat(),
    }
    return json.dumps(document, sort_keys=True)
