"""Feeds of a provider: another account's topic and bucket, which we listen to and read and never change."""

import json
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest

from kfm_pipelines.aws.clients import s3_client, sqs_client
from kfm_pipelines.aws.objects import BucketAccess, get_object, head_object
from kfm_pipelines.aws.provision import account_of, provision
from kfm_pipelines.aws.topics import provider_subscription
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import ObjectForbidden
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.settings import Settings
from kfm_pipelines_tests.fixtures.aws.emulator import bodies, queue_attributes

REGION = "us-west-2"
LAST_MODIFIED = "Thu, 04 Dec 2025 00:00:00 GMT"


@dataclass(frozen=True)
class Provider:
    topic: str
    bucket: str
    sns: Any
    s3: Any

    def state(self) -> list[Any]:
        """All that somebody could have changed, without the subscriptions, which subscribers make."""
        attributes = self.sns.get_topic_attributes(TopicArn=self.topic)["Attributes"]
        notifications = self.s3.get_bucket_notification_configuration(Bucket=self.bucket)
        versioning = self.s3.get_bucket_versioning(Bucket=self.bucket)
        kept = {name: value for name, value in attributes.items() if not name.startswith("Subscriptions")}
        return [kept, notifications.get("TopicConfigurations"), versioning.get("Status")]


@pytest.fixture
def provider(stack: Stack) -> Provider:
    mark = secrets.token_hex(4)
    theirs = {"aws_access_key_id": "673253540267", "aws_secret_access_key": "any", "region_name": REGION}
    endpoint = stack.environment["AWS_ENDPOINT_URL"]
    sns, s3 = (boto3.client(name, endpoint_url=endpoint, **theirs) for name in ("sns", "s3"))  # type: ignore[call-overload]
    topic, bucket = sns.create_topic(Name=f"notify-{mark}")["TopicArn"], f"scenes-{mark}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    return Provider(topic, bucket, sns, s3)


def listening(dataset: Dataset, provider: Provider, **feed: Any) -> Datasets:
    document = dataset.model_dump(mode="json")
    source = {**document["input"], "bucket": provider.bucket, "provider": {"topic": provider.topic, **feed}}
    other = {**document, "dataset": "usgs/scenes", "input": source}
    other["key"] = {**document["key"], "source": "usgs-scenes"}
    return Datasets({dataset.dataset: dataset, "usgs/scenes": Dataset.model_validate(other)})


def test_the_queue_hears_the_topic_and_nothing_of_the_provider_changes(
    settings: Settings, dataset: Dataset, provider: Provider
) -> None:
    before = provider.state()
    lines = provision(settings, listening(dataset, provider, region=REGION))
    assert f"subscription of {settings.queue} to {provider.topic}" in lines
    assert not [line for line in lines if provider.bucket in line]
    assert provision(settings, listening(dataset, provider, region=REGION)) == []
    assert provider.state() == before

    bodies(settings.queue)  # S3's test event
    provider.sns.publish(TopicArn=provider.topic, Message='{"scene": 1}')
    [heard] = bodies(settings.queue)
    assert json.loads(heard)["TopicArn"] == provider.topic


def test_the_policy_of_the_queue_names_exactly_that_topic(
    settings: Settings, dataset: Dataset, provider: Provider
) -> None:
    provision(settings, listening(dataset, provider))
    account = account_of(sqs_client().get_queue_url(QueueName=settings.queue)["QueueUrl"])
    [statement] = json.loads(queue_attributes(settings.queue)["Policy"])["Statement"]
    own = [account.topic_arn(settings.topic), account.topic_arn(settings.notice_topic)]
    assert sorted(statement["Condition"]["ArnEquals"]["aws:SourceArn"]) == sorted([*own, provider.topic])
    for queue in (settings.priority_queue, settings.fifo_queue):
        assert provider.topic not in queue_attributes(queue)["Policy"]


def test_a_topic_that_does_not_exist_keeps_nobody_else_waiting(
    settings: Settings, dataset: Dataset, provider: Provider
) -> None:
    provider.sns.delete_topic(TopicArn=provider.topic)
    lines = provision(settings, listening(dataset, provider))
    assert f"queue {settings.queue}" in lines
    assert not [line for line in lines if provider.topic in line]
    queue = account_of(sqs_client().get_queue_url(QueueName=settings.queue)["QueueUrl"]).queue_arn(settings.queue)
    assert provider_subscription(provider.topic, queue) is None


@pytest.mark.parametrize("key", ["scene/MTL.json", "scene//MTL.json"])  # obstore cannot name the second
def test_requests_carry_the_payer(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    asked: list[Mapping[str, str]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(self.headers))
            self.send_response(200)
            for name, value in {"Content-Length": "2", "ETag": '"a"', "Last-Modified": LAST_MODIFIED}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        s3_client.cache_clear()
        for pays in (True, False):
            get_object(f"any-{secrets.token_hex(4)}", key, None, lambda *_: None, BucketAccess(REGION, pays))
        server.shutdown()
    s3_client.cache_clear()
    assert [headers.get("x-amz-request-payer") for headers in asked] == ["requester", None]


def test_objects_are_read_in_their_region(provider: Provider) -> None:
    access = BucketAccess(REGION)
    provider.s3.put_object(Bucket=provider.bucket, Key="scene/MTL.json", Body=b"{}")
    with pytest.raises(ObjectForbidden):
        get_object(provider.bucket, "scene/MTL.json", None, lambda *_: None, access)
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": "*",
                "Action": "s3:GetObject",
                "Resource": f"arn:aws:s3:::{provider.bucket}/*",
            }
        ],
    }
    provider.s3.put_bucket_policy(Bucket=provider.bucket, Policy=json.dumps(policy))
    data, etag = get_object(provider.bucket, "scene/MTL.json", None, lambda *_: None, access)
    assert (data, head_object(provider.bucket, "scene/MTL.json", access)) == (b"{}", etag)
    assert s3_client(REGION).meta.region_name == REGION
