"""Provisioning creates what is missing, wires it tightly, and touches nothing else."""

import dataclasses
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kfm_pipelines.aws.clients import s3_client, sns_client, sqs_client
from kfm_pipelines.aws.provision import provision
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.process import free_port
from kfm_pipelines.settings import Settings
from kfm_pipelines_tests.fixtures.aws.emulator import bodies, inside_sns, queue_attributes, topic_arn


def records(queue: str, expected: int) -> list[dict[str, Any]]:
    """Receives S3's notices, which arrive a moment after the call."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 10
    while len(found) < expected and time.monotonic() < deadline:
        found += [record for body in bodies(queue) for record in inside_sns(body).get("Records", [])]
    return found


def test_an_object_under_the_prefix_is_announced_on_the_queue(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    (dataset,) = datasets.values()
    for key in (f"{dataset.input.prefix}one.parquet", "elsewhere/two.parquet"):
        s3_client().put_object(Bucket=dataset.input.bucket, Key=key, Body=b"x")
    [record] = records(settings.queue, expected=1)
    assert record["s3"]["object"]["key"] == f"{dataset.input.prefix}one.parquet"
    assert record["s3"]["object"]["versionId"]


def test_an_object_that_is_removed_is_announced_too(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    (dataset,) = datasets.values()
    bucket, key = dataset.input.bucket, f"{dataset.input.prefix}one.parquet"
    version = s3_client().put_object(Bucket=bucket, Key=key, Body=b"x")["VersionId"]
    s3_client().delete_object(Bucket=bucket, Key=key)
    s3_client().delete_object(Bucket=bucket, Key=key, VersionId=version)
    assert sorted(record["eventName"] for record in records(settings.queue, expected=3)) == [
        "ObjectCreated:Put",
        "ObjectRemoved:Delete",
        "ObjectRemoved:DeleteMarkerCreated",
    ]


def test_it_returns_what_it_created(settings: Settings, datasets: Datasets) -> None:
    lines = provision(settings, datasets)
    (dataset,) = datasets.values()
    queues = (settings.queue, settings.priority_queue, settings.fifo_queue)
    dead = (settings.dead_letter_queue, settings.fifo_dead_letter_queue)
    topics = (settings.topic, settings.notice_topic, settings.fifo_queue)
    assert {f"queue {name}" for name in queues + dead} <= set(lines)
    assert {f"topic {name}" for name in topics} <= set(lines)
    assert {f"bucket {dataset.input.bucket}", f"subscription of {settings.queue} to {settings.topic}"} <= set(lines)


def test_a_second_run_creates_and_changes_nothing(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    assert len(bodies(settings.queue)) == 1  # S3 sends a test event whenever notifications are set
    assert provision(settings, datasets) == []
    assert bodies(settings.queue) == []


@pytest.mark.parametrize("intake", ["queue", "priority_queue", "fifo_queue"])
def test_the_queues_are_patient_and_lead_to_their_dead_letter_queue(
    settings: Settings, datasets: Datasets, intake: str
) -> None:
    provision(settings, datasets)
    queue = queue_attributes(getattr(settings, intake))
    dead = queue_attributes(settings.fifo_dead_letter_queue if "fifo" in intake else settings.dead_letter_queue)
    assert (queue["VisibilityTimeout"], queue["ReceiveMessageWaitTimeSeconds"]) == ("120", "0")
    assert queue["MessageRetentionPeriod"] == dead["MessageRetentionPeriod"] == "1209600"
    assert dead["VisibilityTimeout"] == "300"
    assert json.loads(queue["RedrivePolicy"]) == {"deadLetterTargetArn": dead["QueueArn"], "maxReceiveCount": 5}


def test_fifo_queues_and_their_topic_deduplicate_by_body(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    for queue in (settings.fifo_queue, settings.fifo_dead_letter_queue):
        found = queue_attributes(queue)
        assert (found["FifoQueue"], found["ContentBasedDeduplication"]) == ("true", "true")
    found = sns_client().get_topic_attributes(TopicArn=topic_arn(settings.fifo_queue))["Attributes"]
    assert (found["FifoTopic"], found["ContentBasedDeduplication"]) == ("true", "true")


def test_only_the_topics_may_send_and_only_the_buckets_may_publish(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    (dataset,) = datasets.values()
    for queue, topics in {
        settings.queue: [settings.topic, settings.notice_topic],
        settings.priority_queue: [settings.notice_topic],
        settings.fifo_queue: [settings.fifo_queue],
    }.items():
        (sender,) = json.loads(queue_attributes(queue)["Policy"])["Statement"]
        assert sender["Principal"] == {"Service": "sns.amazonaws.com"}
        assert sender["Action"] == "sqs:SendMessage"
        assert sender["Condition"] == {"ArnEquals": {"aws:SourceArn": [topic_arn(name) for name in topics]}}
    for queue in (settings.dead_letter_queue, settings.fifo_dead_letter_queue):
        assert "Policy" not in queue_attributes(queue)
    policy = json.loads(sns_client().get_topic_attributes(TopicArn=topic_arn(settings.topic))["Attributes"]["Policy"])
    (publisher,) = [one for one in policy["Statement"] if one["Sid"] == "kfm-s3"]
    assert publisher["Condition"] == {
        "ArnEquals": {"aws:SourceArn": [f"arn:aws:s3:::{dataset.input.bucket}"]},
        "StringEquals": {"aws:SourceAccount": "000000000000"},
    }


def test_what_drifted_is_put_back_and_named(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    url = sqs_client().get_queue_url(QueueName=settings.queue)["QueueUrl"]
    sqs_client().set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "5"})
    assert provision(settings, datasets) == [f"queue {settings.queue}: VisibilityTimeout"]
    assert queue_attributes(settings.queue)["VisibilityTimeout"] == "120"


def test_notifications_of_others_stay(settings: Settings, datasets: Datasets) -> None:
    (dataset,) = datasets.values()
    s3_client().create_bucket(Bucket=dataset.input.bucket)
    sqs_client().create_queue(QueueName=f"{settings.queue}-other")
    theirs = {"Events": ["s3:ObjectRemoved:*"], "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": "x/"}]}}}
    queue = queue_attributes(f"{settings.queue}-other")["QueueArn"]
    topic = sns_client().create_topic(Name=f"{settings.topic}-other")["TopicArn"]
    s3_client().put_bucket_notification_configuration(
        Bucket=dataset.input.bucket,
        NotificationConfiguration={
            "QueueConfigurations": [{"Id": "theirs", "QueueArn": queue, **theirs}],  # type: ignore[list-item]
            "TopicConfigurations": [{"Id": "theirs", "TopicArn": topic, **theirs}],  # type: ignore[list-item]
        },
    )
    provision(settings, datasets)
    after = s3_client().get_bucket_notification_configuration(Bucket=dataset.input.bucket)
    assert [one["Id"] for one in after["QueueConfigurations"]] == ["theirs"]
    assert [one["Id"] for one in after["TopicConfigurations"]] == ["theirs", "kfm-usgs-streamflow"]


def test_a_changed_prefix_replaces_the_notification(settings: Settings, dataset: Dataset) -> None:
    provision(settings, Datasets({dataset.dataset: dataset}))
    moved = dataset.model_copy(update={"input": dataset.input.model_copy(update={"prefix": "moved/"})})
    provision(settings, Datasets({moved.dataset: moved}))
    after = s3_client().get_bucket_notification_configuration(Bucket=dataset.input.bucket)
    (announced,) = after["TopicConfigurations"]
    assert announced["Filter"]["Key"]["FilterRules"][0]["Value"] == "moved/"


def test_two_at_once_do_not_disturb_each_other(settings: Settings, datasets: Datasets) -> None:
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(provision, settings, datasets) for _ in range(4)]
        assert all(isinstance(run.result(), list) for run in runs)
    assert provision(settings, datasets) == []


def test_a_store_on_s3_gets_a_versioned_bucket(settings: Settings, datasets: Datasets) -> None:
    store = settings.topic.replace("topic", "store")
    lines = provision(dataclasses.replace(settings, store_url=f"s3://{store}/releases"), datasets)
    assert f"bucket {store}" in lines
    assert s3_client().get_bucket_versioning(Bucket=store)["Status"] == "Enabled"


@pytest.fixture
def fresh_clients() -> Iterator[None]:
    """Clients of the environment this test sets, and none of it left for the next."""
    clients = (s3_client, sns_client, sqs_client)
    for client in clients:
        client.cache_clear()
    yield
    for client in clients:
        client.cache_clear()


@pytest.mark.usefixtures("fresh_clients")
def test_in_another_region_the_bucket_is_made_there(
    settings: Settings, datasets: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    provision(settings, datasets)
    (dataset,) = datasets.values()
    assert s3_client().get_bucket_location(Bucket=dataset.input.bucket)["LocationConstraint"] == "eu-central-1"
    assert provision(settings, datasets) == []


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_clients")
def test_an_absent_service_is_one_sentence(
    settings: Settings, datasets: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ServiceUnavailable, match=r"^bucket bucket-"):
        provision(settings, datasets)
