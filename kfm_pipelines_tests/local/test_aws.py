"""The embedded AWS remembers everything over a restart, on whatever port it comes back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import pytest

from kfm_pipelines.local.aws import start_aws
from kfm_pipelines.local.process import Server
from kfm_pipelines_tests.fixtures.sites.processes import mentioning

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient


class Clients:
    def __init__(self, url: str) -> None:
        options: dict[str, Any] = {
            "endpoint_url": url,
            "aws_access_key_id": "any",
            "aws_secret_access_key": "any",
            "region_name": "us-east-1",
        }
        self.s3: S3Client = boto3.client("s3", **options)
        self.sns: SNSClient = boto3.client("sns", **options)
        self.sqs: SQSClient = boto3.client("sqs", **options)


@contextmanager
def aws(home: Path) -> Iterator[tuple[Server, Clients]]:
    emulator = start_aws(home)
    try:
        yield emulator, Clients(emulator.url)
    finally:
        emulator.process.stop()


def queue_arn(clients: Clients, url: str) -> str:
    return clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[tuple[Server, Clients]]:
    """An emulator that was filled, stopped and started again."""
    with aws(tmp_path) as (_, clients):
        clients.s3.create_bucket(Bucket="kept")
        clients.s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
        for body in (b"one", b"two"):
            clients.s3.put_object(Bucket="kept", Key="some/object", Body=body)
        topic = clients.sns.create_topic(Name="kept")["TopicArn"]
        url = clients.sqs.create_queue(QueueName="kept")["QueueUrl"]
        clients.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue_arn(clients, url))
        clients.sqs.send_message(QueueUrl=url, MessageBody="waiting")
    assert not mentioning(tmp_path)
    with aws(tmp_path) as (emulator, clients):
        yield emulator, clients


@pytest.mark.slow
def test_objects_and_their_versions_survive(restarted: tuple[Server, Clients]) -> None:
    _, clients = restarted
    versions = clients.s3.list_object_versions(Bucket="kept")["Versions"]
    bodies = [
        clients.s3.get_object(Bucket="kept", Key="some/object", VersionId=version["VersionId"])["Body"].read()
        for version in versions
    ]
    assert sorted(bodies) == [b"one", b"two"]
    assert clients.s3.get_object(Bucket="kept", Key="some/object")["Body"].read() == b"two"
    assert clients.s3.get_bucket_versioning(Bucket="kept")["Status"] == "Enabled"


@pytest.mark.slow
def test_waiting_messages_survive_and_the_queue_has_the_new_address(restarted: tuple[Server, Clients]) -> None:
    emulator, clients = restarted
    url = clients.sqs.get_queue_url(QueueName="kept")["QueueUrl"]
    assert urlsplit(url).netloc == urlsplit(emulator.url).netloc
    assert clients.sqs.create_queue(QueueName="kept")["QueueUrl"] == url
    assert [message["Body"] for message in clients.sqs.receive_message(QueueUrl=url)["Messages"]] == ["waiting"]


@pytest.mark.slow
def test_subscriptions_survive_and_still_deliver(restarted: tuple[Server, Clients]) -> None:
    _, clients = restarted
    (topic,) = clients.sns.list_topics()["Topics"]
    clients.sns.publish(TopicArn=topic["TopicArn"], Message="after the restart")
    url = clients.sqs.get_queue_url(QueueName="kept")["QueueUrl"]
    bodies = [m["Body"] for m in clients.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]]
    assert any("after the restart" in body for body in bodies)


def test_it_ignores_what_the_shell_says_about_other_emulators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICES", "dynamodb")
    monkeypatch.setenv("MINISTACK_HOST", "elsewhere.example")
    monkeypatch.setenv("GATEWAY_PORT", "1")
    with aws(tmp_path) as (emulator, clients):
        url = clients.sqs.create_queue(QueueName="queue")["QueueUrl"]
        assert urlsplit(url).netloc == urlsplit(emulator.url).netloc
