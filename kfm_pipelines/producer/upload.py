"""Uploads objects and publishes messages: the other end of the queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kfm_pipelines.aws.batches import Outgoing, RefusedMessage, batch_entries, parse_refusals, text_attributes
from kfm_pipelines.aws.clients import s3_client, sns_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import SettingsInvalid


@dataclass(frozen=True, slots=True)
class UploadedObject:
    """An object in a dataset's bucket."""

    dataset: Dataset
    object_key: str
    etag: str
    size: int
    version_id: str | None
    event_time: datetime

    @property
    def bucket(self) -> str:
        return self.dataset.input.bucket


def upload(dataset: Dataset, object_key: str, data: bytes, event_time: datetime) -> UploadedObject:
    """Puts an object into the dataset's bucket. S3 sends a notice of its own."""
    bucket = dataset.input.bucket
    with translate_aws_errors(f"uploading {object_key} to {bucket}"):
        response = s3_client().put_object(Bucket=bucket, Key=object_key, Body=data)
    return UploadedObject(
        dataset, object_key, response["ETag"].strip('"'), len(data), response.get("VersionId"), event_time
    )


class Topic:
    """An SNS topic, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._cached_arn: str | None = None

    def send(self, body: str, attributes: Mapping[str, str] | None = None) -> None:
        with translate_aws_errors(f"publishing to topic {self.name}"):
            sns_client().publish(TopicArn=self._arn, Message=body, MessageAttributes=text_attributes(attributes or {}))

    def send_batch(self, batch: Sequence[Outgoing]) -> list[RefusedMessage]:
        """Publishes up to ten messages to a FIFO topic and returns those that SNS refused."""
        with translate_aws_errors(f"publishing to topic {self.name}"):
            response = sns_client().publish_batch(
                TopicArn=self._arn, PublishBatchRequestEntries=batch_entries(batch, "Message")
            )
        return parse_refusals(response)

    @property
    def _arn(self) -> str:
        if self._cached_arn is None:
            self._cached_arn = _find_topic_arn(self.name)
        return self._cached_arn


def _find_topic_arn(name: str) -> str:
    for page in sns_client().get_paginator("list_topics").paginate():
        for topic in page["Topics"]:
            if topic["TopicArn"].rsplit(":", 1)[-1] == name:
                return topic["TopicArn"]
    raise SettingsInvalid(f"there is no topic {name!r}; `kfm doctor --fix` creates it")
