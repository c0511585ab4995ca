"""The other end of the queue: upload objects and send messages, for demonstrations, tests and operators."""

import json
from datetime import datetime

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.events.messages import s3_notification
from kfm_pipelines.messaging.aws_errors import translated
from kfm_pipelines.messaging.clients import s3_client, sns_client


def upload(dataset: Dataset, object_key: str, data: bytes, event_time: datetime) -> str:
    """Put an object into the dataset's bucket. S3 sends its notice; the same notice is returned, to be sent again."""
    bucket = dataset.input.bucket
    with translated(f"uploading {object_key} to {bucket}"):
        answer = s3_client().put_object(Bucket=bucket, Key=object_key, Body=data)
    notice = s3_notification(
        bucket=bucket,
        object_key=object_key,
        etag=answer["ETag"].strip('"'),
        size=len(data),
        version_id=answer.get("VersionId"),
        event_time=event_time,
    )
    return json.dumps(notice)


class Topic:
    """An SNS topic, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._known_arn: str | None = None

    def send(self, body: str) -> None:
        with translated(f"publishing to topic {self.name}"):
            sns_client().publish(TopicArn=self._arn, Message=body)

    @property
    def _arn(self) -> str:
        if self._known_arn is None:
            self._known_arn = _arn_of(self.name)
        return self._known_arn


def _arn_of(name: str) -> str:
    for page in sns_client().get_paginator("list_topics").paginate():
        for topic in page["Topics"]:
            if topic["TopicArn"].rsplit(":", 1)[-1] == name:
                return topic["TopicArn"]
    raise SettingsInvalid(f"there is no topic {name!r}; `kfm doctor --fix` creates it")
