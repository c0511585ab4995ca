"""Provisioning creates what is missing, wires it tightly, and touches nothing else."""

import dataclasses
import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kfm_pipelines.datasets import Dataset, Datasets, load_datasets
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.ports import free_port
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.messaging.clients import s3_client, sns_client, sqs_client
from kfm_pipelines.messaging.policies import allow, with_statement
from kfm_pipelines.messaging.provision import provision
from kfm_pipelines.settings import Settings, load_settings


@pytest.fixture
def settings(stack: Stack) -> Settings:
    """Names of this test's own, so that tests share one emulator without meeting."""
    mark = secrets.token_hex(4)
    return dataclasses.replace(
        load_settings(), topic=f"topic-{mark}", queue=f"queue-{mark}", dead_letter_queue=f"dead-{mark}"
    )


@pytest.fixture
def dataset(settings: Settings) -> Dataset:
    declared = load_datasets(settings.resources)["usgs/streamflow"]
    bucket = settings.topic.replace("topic", "bucket")
    return declared.model_copy(update={"input": declared.input.model_copy(update={"bucket": bucket})})


@pytest.fixture
def datasets(dataset: Dataset) -> Datasets:
    return Datasets({dataset.dataset: dataset})


def attributes(queue: str) -> dict[str, str]:
    url = sqs_client().get_queue_url(QueueName=queue)["QueueUrl"]
    return {**sqs_client().get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]}  # type: ignore[dict-item]


def received(queue: str) -> list[dict[str, Any]]:
    """The S3 documents that came through the topic."""
    url = sqs_client().get_queue_url(QueueName=queue)["QueueUrl"]
    answer = sqs_client().receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0, WaitTimeSeconds=1)
    return [json.loads(json.loads(message["Body"])["Message"]) for message in answer.get("Messages", [])]


def test_an_object_under_the_prefix_is_announced_on_the_queue(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    (dataset,) = datasets.values()
    for key in (f"{dataset.input.prefix}one.parquet", "elsewhere/two.parquet"):
        s3_client().put_object(Bucket=dataset.input.bucket, Key=key, Body=b"x")
    records = [record for document in received(settings.queue) for record in document.get("Records", [])]
    assert [record["s3"]["object"]["key"] for record in records] == [f"{dataset.input.prefix}one.parquet"]
    assert records[0]["s3"]["object"]["versionId"]


def test_it_says_what_it_created(settings: Settings, datasets: Datasets) -> None:
    lines = "\n".join(provision(settings, datasets))
    (dataset,) = datasets.values()
    for name in (settings.topic, settings.queue, settings.dead_letter_queue, dataset.input.bucket, "subscription"):
        assert name in lines


def test_a_second_run_creates_and_changes_nothing(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    announced = len(received(settings.queue))  # S3 sends a test event whenever notifications are set
    assert provision(settings, datasets) == []
    assert len(received(settings.queue)) == announced == 1


def test_the_queues_are_patient_and_lead_to_the_dead_letter_queue(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    queue, dead = attributes(settings.queue), attributes(settings.dead_letter_queue)
    assert (queue["VisibilityTimeout"], queue["ReceiveMessageWaitTimeSeconds"]) == ("120", "0")
    assert queue["MessageRetentionPeriod"] == dead["MessageRetentionPeriod"] == "1209600"
    redrive = json.loads(queue["RedrivePolicy"])
    assert redrive == {"deadLetterTargetArn": dead["QueueArn"], "maxReceiveCount": 5}


def test_only_the_topic_may_send_and_only_the_buckets_may_publish(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    (dataset,) = datasets.values()
    topic = next(t["TopicArn"] for t in sns_client().list_topics()["Topics"] if t["TopicArn"].endswith(settings.topic))
    (sender,) = json.loads(attributes(settings.queue)["Policy"])["Statement"]
    assert sender["Principal"] == {"Service": "sns.amazonaws.com"}
    assert sender["Condition"] == {"ArnEquals": {"aws:SourceArn": [topic]}}
    policy = json.loads(sns_client().get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"])
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
    assert attributes(settings.queue)["VisibilityTimeout"] == "120"


def test_notifications_of_others_stay(settings: Settings, datasets: Datasets) -> None:
    (dataset,) = datasets.values()
    s3_client().create_bucket(Bucket=dataset.input.bucket)
    url = sqs_client().create_queue(QueueName=f"{settings.queue}-other")["QueueUrl"]
    arn = attributes(f"{settings.queue}-other")["QueueArn"]
    policy = with_statement("", allow("s3", "s3.amazonaws.com", "sqs:SendMessage", arn, ["arn:aws:s3:::*"])) or ""
    sqs_client().set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy.replace("ArnEquals", "ArnLike")})
    s3_client().put_bucket_notification_configuration(
        Bucket=dataset.input.bucket,
        NotificationConfiguration={
            "QueueConfigurations": [{"Id": "theirs", "QueueArn": arn, "Events": ["s3:ObjectRemoved:*"]}]
        },
    )
    provision(settings, datasets)
    after = s3_client().get_bucket_notification_configuration(Bucket=dataset.input.bucket)
    assert [one["Id"] for one in after["QueueConfigurations"]] == ["theirs"]
    assert [one["Id"] for one in after["TopicConfigurations"]] == ["kfm-usgs-streamflow"]


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


def test_a_store_on_s3_gets_its_bucket(settings: Settings, datasets: Datasets) -> None:
    store = settings.topic.replace("topic", "store")
    lines = provision(dataclasses.replace(settings, store_url=f"s3://{store}/releases"), datasets)
    assert f"bucket {store}" in lines
    s3_client().head_bucket(Bucket=store)


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
