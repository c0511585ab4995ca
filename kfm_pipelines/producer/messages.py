"""Builds messages in the shapes the pipeline reads: for our own producers, the demo and the tests.

Belongs here: JSON documents as a sender would write them. Does not: sending them.
"""

from datetime import datetime
from typing import Any
from urllib.parse import quote_plus

from kfm_pipelines.events.notice import Priority
from kfm_pipelines.events.timestamps import write_timestamp


def s3_notification(
    bucket: str,
    object_key: str,
    etag: str | None,
    size: int,
    version_id: str | None,
    event_time: datetime,
    sequencer: str | None = None,
) -> dict[str, Any]:
    """What S3 sends when an object is put."""
    stored = {"size": size, "eTag": etag, "versionId": version_id, "sequencer": sequencer}
    return _s3_message("ObjectCreated:Put", bucket, object_key, stored, event_time)


def s3_removal(
    bucket: str,
    object_key: str,
    version_id: str | None,
    event_time: datetime,
    sequencer: str | None = None,
    event_name: str = "ObjectRemoved:Delete",
) -> dict[str, Any]:
    """What S3 sends when an object, or one version of it, is removed."""
    return _s3_message(event_name, bucket, object_key, {"versionId": version_id, "sequencer": sequencer}, event_time)


def s3_envelope(
    bucket: str,
    object_key: str,
    etag: str | None,
    size: int,
    version_id: str | None,
    event_time: datetime,
    event_id: str,
) -> dict[str, Any]:
    """The KFM S3 envelope of an object that was put; the key is as it is."""
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
    return _drop_nulls(message)


def fifo_envelope(
    event_id: str,
    event_source: str,
    event_time: datetime,
    payload: dict[str, Any],
    dedupe_key: str | None = None,
) -> dict[str, Any]:
    """The body of a FIFO message. Its uniqueness is in the body, where it survives redrives and replays."""
    message = {
        "event_id": event_id,
        "event_source": event_source,
        "event_time": write_timestamp(event_time),
        "dedupe_key": dedupe_key,
        "payload": payload,
    }
    return _drop_nulls(message)


def wrap_in_sns(message: str, topic_arn: str, message_id: str, timestamp: datetime) -> dict[str, Any]:
    """The envelope SNS puts around a message for a queue without raw delivery."""
    return {
        "Type": "Notification",
        "MessageId": message_id,
        "TopicArn": topic_arn,
        "Message": message,
        "Timestamp": write_timestamp(timestamp),
    }


def auto_update(
    dataset: str,
    asset_uri: str,
    content_etag: str,
    granule_start: datetime | None,
    granule_end: datetime | None,
    event_time: datetime,
    priority: Priority = "normal",
) -> dict[str, Any]:
    """An auto-update v1 message."""
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
    return _drop_nulls(message)


def _s3_message(
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
            # Form-encoded, as S3 does.
            "object": {"key": quote_plus(object_key, safe="/")} | _drop_nulls(stored),
        },
    }
    return {"Records": [record]}


def _drop_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """A sender leaves out what it does not know; it does not write null."""
    return {name: value for name, value in fields.items() if value is not None}


def routing_attributes(dataset: str, product: str, priority: Priority) -> dict[str, str]:
    """The attributes of a notice, which SNS filters by: they repeat what the body says or implies, never more."""
    return {"dataset": dataset, "product": product, "priority": priority}
