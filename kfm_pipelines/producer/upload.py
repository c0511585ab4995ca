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
    etag, version = response["ETag"].strip('"'), response.get("VersionId")
    return UploadedObject(dataset, object_key, etag, len(data), version, event_time)


class Topic:
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
            pages = sns_client().get_paginator("list_topics").paginate()
            arns = (topic["TopicArn"] for page in pages for topic in page["Topics"])
            self._cached_arn = next((arn for arn in arns if arn.rsplit(":", 1)[-1] == self.name), None)
        if self._cached_arn is None:
            raise SettingsInvalid(f"there is no topic {self.name!r}; `kfm doctor --fix` creates it")
        return self._cached_arn
