"""The embedded AWS keeps everything over a restart, whatever its port."""

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


@pytest.mark.slow
def test_everything_survives_a_restart_on_another_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Variables for other emulators, which must be ignored.
    for name, value in {"SERVICES": "dynamodb", "MINISTACK_HOST": "elsewhere.example", "GATEWAY_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with aws(tmp_path) as (emulator, clients):
        clients.s3.create_bucket(Bucket="kept")
        clients.s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
        for body in (b"one", b"two"):
            clients.s3.put_object(Bucket="kept", Key="some/object", Body=body)
        topic = clients.sns.create_topic(Name="kept")["TopicArn"]
        url = clients.sqs.create_queue(QueueName="kept")["QueueUrl"]
        assert urlsplit(url).netloc == urlsplit(emulator.url).netloc
        clients.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue_arn(clients, url))
        clients.sqs.send_message(QueueUrl=url, MessageBody="waiting")
    assert not mentioning(tmp_path)
    with aws(tmp_path) as (emulator, clients):
        assert_objects_and_versions(clients)
        assert_queue_and_subscription(clients, emulator.url)


def assert_objects_and_versions(clients: Clients) -> None:
    versions = clients.s3.list_object_versions(Bucket="kept")["Versions"]
    bodies = [
        clients.s3.get_object(Bucket="kept", Key="some/object", VersionId=version["VersionId"])["Body"].read()
        for version in versions
    ]
    assert sorted(bodies) == [b"one", b"two"]
    assert clients.s3.get_object(Bucket="kept", Key="some/object")["Body"].read() == b"two"
    assert clients.s3.get_bucket_versioning(Bucket="kept")["Status"] == "Enabled"


def assert_queue_and_subscription(clients: Clients, address: str) -> None:
    """The queue has the new address and its message; the subscription still delivers."""
    url = clients.sqs.get_queue_url(QueueName="kept")["QueueUrl"]
    assert urlsplit(url).netloc == urlsplit(address).netloc
    assert clients.sqs.create_queue(QueueName="kept")["QueueUrl"] == url
    assert [message["Body"] for message in clients.sqs.receive_message(QueueUrl=url)["Messages"]] == ["waiting"]
    (topic,) = clients.sns.list_topics()["Topics"]
    clients.sns.publish(TopicArn=topic["TopicArn"], Message="after the restart")
    [delivered] = clients.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert "after the restart" in delivered["Body"]
