"""Builds message bodies in the shapes the pipeline reads. Sends nothing."""

from datetime import datetime
from typing import Any
from urllib.parse import quote_plus

from kfm_pipelines.events.notice import Priority
from kfm_pipelines.text import write_timestamp


def s3_notification(
    bucket: str,
    object_key: str,
    etag: str | None,
    size: int,
    version_id: str | None,
    event_time: datetime,
    sequencer: str | None = None,
) -> dict[str, Any]:
    stored = {"size": size, "eTag": etag, "versionId": version_id, "sequencer": sequencer}
    return s3_message("ObjectCreated:Put", bucket, object_key, stored, event_time)


def s3_message(
    event_name: str, bucket: str, object_key: str, stored: dict[str, Any], event_time: datetime
) -> dict[str, Any]:
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": write_timestamp(event_time),
        "eventName": event_name,
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            # S3 form-encodes keys.
            "object": {"key": quote_plus(object_key, safe="/")} | drop_nulls(stored),
        },
    }
    return {"Records": [record]}


def s3_envelope(
    bucket: str,
    object_key: str,
    etag: str | None,
    size: int,
    version_id: str | None,
    event_time: datetime,
    event_id: str,
) -> dict[str, Any]:
    """The KFM S3 envelope of an object that was put. The key is not encoded."""
    message = {
        "event_id": event_id,
        "source": "s3:ObjectCreated:Put",
        "bucket": bucket,
        "key": object_key,
        "etag": etag,
        "version_id": version_id,
        "size": size,
        "event_time": write_timestamp(event_time),
    }
    return drop_nulls(message)


def auto_update(
    dataset: str,
    asset_uri: str,
    content_etag: str,
    granule_start: datetime | None,
    granule_end: datetime | None,
    event_time: datetime,
    priority: Priority = "normal",
) -> dict[str, Any]:
    message = {
        "event_time": write_timestamp(event_time),
        "dataset": dataset,
        "asset_uri": asset_uri,
        "content_etag": content_etag,
        "granule_start": granule_start and write_timestamp(granule_start),
        "granule_end": granule_end and write_timestamp(granule_end),
        "priority": priority,
        "schema_version": "1.0",
    }
    return drop_nulls(message)


def drop_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Senders leave unknown fields out; they do not write null."""
    return {name: value for name, value in fields.items() if value is not None}
