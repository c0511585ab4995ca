"""Buckets and their notifications: reading them, and correcting what differs. Handles no objects."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import error_code, translate_aws_errors
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import SettingsInvalid

CREATED = "s3:ObjectCreated:*"
# Removals by a lifecycle rule have an event name of their own.
REMOVED = ("s3:LifecycleExpiration:*", "s3:ObjectRemoved:*")
EVENTS = (*REMOVED, CREATED)


def is_versioned(bucket: str) -> bool:
    with translate_aws_errors(f"reading bucket {bucket}"):
        return s3_client().get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled"


def notifications_of(bucket: str) -> dict[str, Any]:
    with translate_aws_errors(f"notifications of bucket {bucket}"):
        current: dict[str, Any] = dict(s3_client().get_bucket_notification_configuration(Bucket=bucket))
    current.pop("ResponseMetadata", None)
    return current


def missing_events(notifications: Mapping[str, Any], topic: str, prefix: str) -> list[str]:
    if notifications.get("EventBridgeConfiguration") is not None:
        return []  # EventBridge gets every event, and its rules belong to the operator
    reaching = [
        one
        for one in notifications.get("TopicConfigurations", [])
        if one["TopicArn"] == topic and _covers_prefix(one.get("Filter", {}), prefix)
    ]
    announced = {event for one in reaching for event in one["Events"]}
    return [event for event in EVENTS if event not in announced]


def ensure_bucket(name: str) -> list[str]:
    """Creates the bucket and turns versioning on: an event names one version of an object, which must stay."""
    done: list[str] = []
    with translate_aws_errors(f"bucket {name}"):
        if not _exists(name) and _create(name):
            done.append(f"bucket {name}")
        if not is_versioned(name):
            s3_client().put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
            done.append(f"bucket {name}: versioning")
    return done


def ensure_notifications(bucket: str, topic: str, datasets: Iterable[Dataset]) -> list[str]:
    """Sets one notification for each dataset's prefix and keeps the notifications of others."""
    wanted: list[dict[str, Any]] = [
        {
            "Id": f"kfm-{dataset.pipeline}",
            "TopicArn": topic,
            "Events": list(EVENTS),
            "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": dataset.input.prefix}]}},
        }
        for dataset in datasets
    ]
    current = notifications_of(bucket)
    announced = current.get("TopicConfigurations", [])
    ours = [one for one in announced if one["TopicArn"] == topic and one["Id"].startswith("kfm-")]
    if _normalise_notifications(ours) == _normalise_notifications(wanted):
        return []
    current["TopicConfigurations"] = [one for one in announced if one not in ours] + wanted
    with translate_aws_errors(f"notifications of bucket {bucket}"):
        s3_client().put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=current)  # type: ignore[arg-type]
    return [f"notifications of bucket {bucket}: {', '.join(one['Id'] for one in wanted)}"]


def _exists(name: str) -> bool:
    try:
        s3_client().head_bucket(Bucket=name)
    except s3_client().exceptions.ClientError as error:
        if error_code(error) in ("404", "NoSuchBucket"):
            return False
        raise
    return True


def _create(name: str) -> bool:
    s3 = s3_client()
    try:
        if s3.meta.region_name == "us-east-1":  # the one region that must not be named
            s3.create_bucket(Bucket=name)
        else:
            s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})  # type: ignore[typeddict-item]
    except s3.exceptions.BucketAlreadyOwnedByYou:
        return False
    except s3.exceptions.BucketAlreadyExists:
        raise SettingsInvalid(f"bucket {name}: the name belongs to another AWS account; declare another one") from None
    return True


def _covers_prefix(key_filter: Mapping[str, Any], prefix: str) -> bool:
    rules = key_filter.get("Key", {}).get("FilterRules", [])
    return all(rule["Name"].lower() == "prefix" and prefix.startswith(rule["Value"]) for rule in rules)


def _normalise_notifications(notifications: Iterable[Mapping[str, Any]]) -> list[str]:
    """AWS returns `Prefix` for `prefix`, and events in any order."""
    ordered = [{**one, "Events": sorted(one["Events"])} for one in notifications]
    return sorted(json.dumps(one, sort_keys=True).replace('"Prefix"', '"prefix"') for one in ordered)
