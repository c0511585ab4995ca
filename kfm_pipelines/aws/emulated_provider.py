"""Plays the account of a provider at an emulator on this machine: its bucket, its topic and what they announce."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kfm_pipelines.aws.clients import new_session, sns_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ProducerMistaken

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sns import SNSClient

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_emulated() -> bool:
    """Whether AWS is an emulator on this machine, which has no providers but those that are played."""
    return urlsplit(str(sns_client().meta.endpoint_url)).hostname in _LOOPBACK


class EmulatedProvider:
    """The provider that a dataset listens to."""

    def __init__(self, dataset: Dataset) -> None:
        """Raises ProducerMistaken unless the dataset has a provider and AWS is an emulator on this machine."""
        feed = dataset.input.provider
        if feed is None:
            raise ProducerMistaken(f"{dataset.dataset} has no provider; its bucket is ours")
        self._endpoint = str(sns_client().meta.endpoint_url)
        if not is_emulated():
            raise ProducerMistaken(
                f"{dataset.dataset} is fed by its provider; samples of it exist on the embedded stack only"
            )
        self._topic, self._topic_region = feed.topic, feed.topic_region
        self._bucket, self._bucket_region = dataset.input.bucket, feed.region or "us-east-1"

    def set_up(self) -> bool:
        """Creates topic and bucket, which anybody may listen to and read. Returns whether they are new."""
        with translate_aws_errors(f"topic {self._topic}"):
            self._sns.create_topic(Name=self._topic.rpartition(":")[2])
        with translate_aws_errors(f"bucket {self._bucket}"):
            known = {one["Name"] for one in self._s3.list_buckets()["Buckets"]}
            if self._bucket in known:
                return False
            self._s3.create_bucket(Bucket=self._bucket, **self._location())
            statement = {
                "Effect": "Allow",
                "Principal": "*",
                "Action": ["s3:GetObject", "s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{self._bucket}", f"arn:aws:s3:::{self._bucket}/*"],
            }
            policy = {"Version": "2012-10-17", "Statement": [statement]}
            self._s3.put_bucket_policy(Bucket=self._bucket, Policy=json.dumps(policy))
        return True

    def _location(self) -> dict[str, Any]:
        """S3 refuses the name of its first region."""
        if self._bucket_region == "us-east-1":
            return {}
        return {"CreateBucketConfiguration": {"LocationConstraint": self._bucket_region}}

    def put(self, objects: Mapping[str, bytes]) -> None:
        with translate_aws_errors(f"uploading to {self._bucket}"):
            for object_key, data in objects.items():
                self._s3.put_object(Bucket=self._bucket, Key=object_key, Body=data)

    def send(self, body: str) -> None:
        with translate_aws_errors(f"publishing to topic {self._topic}"):
            self._sns.publish(TopicArn=self._topic, Message=body)

    @cached_property
    def _sns(self) -> "SNSClient":
        client: SNSClient = self._client("sns", self._topic_region)
        return client

    @cached_property
    def _s3(self) -> "S3Client":
        client: S3Client = self._client("s3", self._bucket_region)
        return client

    def _client(self, service: Any, region: str) -> Any:
        """The emulator takes an access key of twelve digits for the account that it names."""
        account = self._topic.split(":")[4]
        return new_session().client(
            service,
            endpoint_url=self._endpoint,
            region_name=region,
            aws_access_key_id=account,
            aws_secret_access_key="emulated",  # noqa: S106 - the emulator accepts any
        )
