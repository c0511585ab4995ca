"""Buckets, topic, queues and the wiring between them, created where they are missing.

Safe to run at any time, twice, or by two at once: it looks first, changes only what differs from what we declare, and
leaves what others have set up beside it alone. Belongs here: the resources. Does not: any message.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from kfm_pipelines.datasets import Dataset, Datasets
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.messaging.aws_errors import code_of, translated
from kfm_pipelines.messaging.clients import s3_client, sns_client, sqs_client
from kfm_pipelines.messaging.policies import allow, with_statement
from kfm_pipelines.settings import Settings

_QUEUE_SETTINGS = {
    "VisibilityTimeout": "120",
    "MessageRetentionPeriod": str(14 * 24 * 3600),
    "ReceiveMessageWaitTimeSeconds": "0",
}
_RECEIVES_BEFORE_DEAD_LETTER = 5


def provision(settings: Settings, datasets: Datasets) -> list[str]:
    """Create what is missing; return one line for each thing created or changed, none when all was there."""
    buckets = sorted({dataset.input.bucket for dataset in datasets.values()})
    done: list[str] = []
    for bucket in buckets:
        done += _bucket(bucket, versioned=True)
    store = urlsplit(settings.store_url)
    if store.scheme == "s3":
        done += _bucket(store.netloc, versioned=False)
    topic, lines = _topic(settings.topic, buckets)
    done += lines
    queue, lines = _queues(settings, topic)
    done += lines + _subscription(topic, queue)
    for bucket in buckets:
        done += _notification(bucket, topic, [d for d in datasets.values() if d.input.bucket == bucket])
    return done


def _bucket(name: str, *, versioned: bool) -> list[str]:
    done: list[str] = []
    with translated(f"bucket {name}"):
        if not _bucket_exists(name) and _create_bucket(name):
            done.append(f"bucket {name}")
        if versioned and s3_client().get_bucket_versioning(Bucket=name).get("Status") != "Enabled":
            s3_client().put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
            done.append(f"bucket {name}: versioning")
    return done


def _bucket_exists(name: str) -> bool:
    try:
        s3_client().head_bucket(Bucket=name)
    except s3_client().exceptions.ClientError as error:
        if code_of(error) in ("404", "NoSuchBucket"):
            return False
        raise
    return True


def _create_bucket(name: str) -> bool:
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


def _topic(name: str, buckets: Sequence[str]) -> tuple[str, list[str]]:
    """The topic's ARN; S3 may publish to it from these buckets only."""
    sns = sns_client()
    with translated(f"topic {name}"):
        known = {topic["TopicArn"] for page in sns.get_paginator("list_topics").paginate() for topic in page["Topics"]}
        arn = sns.create_topic(Name=name)["TopicArn"]
        done = [] if arn in known else [f"topic {name}"]
        sources = [f"arn:aws:s3:::{bucket}" for bucket in buckets]
        wanted = allow("kfm-s3", "s3.amazonaws.com", "sns:Publish", arn, sources)
        policy = sns.get_topic_attributes(TopicArn=arn)["Attributes"].get("Policy", "")
        if (changed := with_statement(policy, wanted)) is not None:
            sns.set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=changed)
            done.append(f"topic {name}: policy")
    return arn, done


def _queues(settings: Settings, topic: str) -> tuple[str, list[str]]:
    """The queue's ARN. The topic alone may send to it; what keeps failing goes to the dead-letter queue."""
    dead_letters, done = _queue(settings.dead_letter_queue, {})
    redrive = {"deadLetterTargetArn": dead_letters, "maxReceiveCount": _RECEIVES_BEFORE_DEAD_LETTER}
    arn, lines = _queue(settings.queue, {"RedrivePolicy": json.dumps(redrive)}, sender=topic)
    return arn, done + lines


def _queue(name: str, more: Mapping[str, str], sender: str = "") -> tuple[str, list[str]]:
    sqs = sqs_client()
    with translated(f"queue {name}"):
        try:
            url, done = sqs.get_queue_url(QueueName=name)["QueueUrl"], []
        except sqs.exceptions.QueueDoesNotExist:
            url, done = sqs.create_queue(QueueName=name)["QueueUrl"], [f"queue {name}"]
        answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        current = {str(name): value for name, value in answer["Attributes"].items()}
        arn = current["QueueArn"]
        wanted = {**_QUEUE_SETTINGS, **more}
        differing = {k: v for k, v in wanted.items() if not _same(current.get(k), v)}
        if sender:
            statement = allow("kfm-topic", "sns.amazonaws.com", "sqs:SendMessage", arn, [sender])
            if (policy := with_statement(current.get("Policy", ""), statement)) is not None:
                differing["Policy"] = policy
        if differing:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=differing)  # type: ignore[arg-type]
            done.append(f"queue {name}: {', '.join(sorted(differing))}")
    return arn, done


def _same(current: str | None, wanted: str) -> bool:
    """AWS reorders JSON and writes its numbers as it likes."""
    if current is None or not wanted.startswith("{"):
        return current == wanted
    return {k: str(v) for k, v in json.loads(current).items()} == {k: str(v) for k, v in json.loads(wanted).items()}


def _subscription(topic: str, queue: str) -> list[str]:
    sns = sns_client()
    with translated(f"subscription of {queue} to {topic}"):
        pages = sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic)
        if any(subscription["Endpoint"] == queue for page in pages for subscription in page["Subscriptions"]):
            return []
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "false"})
    return [f"subscription of {queue} to {topic}"]


def _notification(bucket: str, topic: str, datasets: Iterable[Dataset]) -> list[str]:
    """One notification for each dataset's prefix, beside whatever notifications others have set up."""
    s3 = s3_client()
    wanted = [_announce(dataset, topic) for dataset in datasets]
    with translated(f"notifications of bucket {bucket}"):
        current: dict[str, Any] = dict(s3.get_bucket_notification_configuration(Bucket=bucket))
        current.pop("ResponseMetadata", None)
        announced = current.get("TopicConfigurations", [])
        ours = [one for one in announced if one["TopicArn"] == topic and one["Id"].startswith("kfm-")]
        if _comparable(ours) == _comparable(wanted):
            return []
        current["TopicConfigurations"] = [one for one in announced if one not in ours] + wanted
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=current)  # type: ignore[arg-type]
    return [f"notifications of bucket {bucket}: {', '.join(one['Id'] for one in wanted)}"]


def _announce(dataset: Dataset, topic: str) -> dict[str, Any]:
    return {
        "Id": f"kfm-{dataset.pipeline}",
        "TopicArn": topic,
        "Events": ["s3:ObjectCreated:*"],
        "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": dataset.input.prefix}]}},
    }


def _comparable(announced: Iterable[Mapping[str, Any]]) -> list[str]:
    """AWS answers `Prefix` where we say `prefix`, and in any order."""
    return sorted(json.dumps(one, sort_keys=True).replace('"Prefix"', '"prefix"') for one in announced)
