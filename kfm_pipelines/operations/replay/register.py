"""Creates keys for windows no event has named, from what is in the bucket now."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import MessageRefused, ReplayRefused
from kfm_pipelines.events import IngestEvent, key_of, resolve_event, window_of
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.s3 import S3Object, s3_notice
from kfm_pipelines.inbox.record import register_events
from kfm_pipelines.operations.replay.eligible import NewKey, create_keys
from kfm_pipelines.services import Services
from kfm_pipelines.state import audit
from kfm_pipelines.state.audit import Action, AuditEntry

MAX_WINDOWS = 50_000  # more partitions in one definition make Dagster's pages slow
LISTING_SHAPE = "s3-listing"


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """Objects found, events that were new, the sorted keys of all windows, and how many of those were new."""

    objects: int
    events: int
    keys: tuple[str, ...]
    new_keys: int


def register_windows(
    services: Services, dataset: Dataset, start: datetime, end: datetime, actor: str
) -> RegistrationResult:
    """Gives every window that begins in [start, end) a key. The audit entry is written first."""
    windows = list(_windows(dataset, start, end))
    detail: dict[str, object] = {"windows": len(windows)}
    if windows:
        detail |= {"from": windows[0].window_start.isoformat(), "to": windows[-1].window_end.isoformat()}
    entry = AuditEntry(Action.WINDOWS_REGISTERED, actor, dataset.dataset, dataset.policy, detail=detail)
    with services.database.transaction() as connection:
        audit.record(connection, [entry])
    found = [one for one in _list_events(services, dataset) if start <= one[0].window_start < end]
    new_keys = create_keys(services.database, dataset.dataset, windows)
    events = register_events(services.database, services.datasets, found, actor) if found else 0
    return RegistrationResult(len(found), events, tuple(sorted(one.key for one in windows)), new_keys)


def _windows(dataset: Dataset, start: datetime, end: datetime) -> Iterator[NewKey]:
    try:
        window = window_of(start, dataset.key.window)
        if window.start < start:
            window = window_of(window.end, dataset.key.window)
        for _ in range(MAX_WINDOWS):
            if window.start >= end:
                return
            yield NewKey(str(key_of(dataset, window)), window.start, window.end)
            window = window_of(window.end, dataset.key.window)
    except ValueError as error:
        raise ReplayRefused(f"{error}; register up to an earlier time") from None
    if window.start < end:
        raise ReplayRefused(f"more than {MAX_WINDOWS} windows of one {dataset.key.window}; register them in parts")


def _list_events(services: Services, dataset: Dataset) -> Iterator[tuple[IngestEvent, str]]:
    """Yields each object as the event its notification would be, with the JSON archived in place of a message."""
    for notice in _list_objects(dataset.input.bucket, dataset.input.prefix):
        try:
            event = resolve_event(notice, services.datasets)
        except MessageRefused:  # its notification would be refused too, but nobody sent one
            continue
        archived = {
            "shape": notice.shape,
            "bucket": notice.bucket,
            "key": notice.object_key,
            "etag": notice.etag,
            "version_id": notice.version_id,
            "size": notice.size,
            "last_modified": notice.event_time.isoformat(),
        }
        yield event, json.dumps(archived, sort_keys=True)


def _list_objects(bucket: str, prefix: str) -> Iterator[ObjectNotice]:
    """Yields current object versions, a thousand per request. Skips deleted objects and names no notice could have."""
    pages = s3_client().get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    with translate_aws_errors(f"listing s3://{bucket}/{prefix}"):
        for version in (version for page in pages for version in page.get("Versions", ()) if version["IsLatest"]):
            stored = S3Object(
                bucket, version["Key"], version.get("ETag"), version.get("VersionId"), version["Size"], None
            )
            try:
                yield s3_notice(LISTING_SHAPE, "created", stored, version["LastModified"])
            except MessageRefused:
                continue
