"""Uploads objects and sends messages without deduplication ids: SQS delivers equal bodies once in five minutes."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from kfm_pipelines.aws.batches import (
    Outgoing,
    RefusedMessage,
    batch_entries,
    parse_refusals,
    split_batches,
    text_attributes,
)
from kfm_pipelines.aws.clients import s3_client, sns_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ProducerMistaken, SendIncomplete, SettingsInvalid
from kfm_pipelines.producer.envelope import Envelope, outgoing_message, require_valid_group

DEDUPLICATION_WINDOW_SECONDS = 300.0


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


class FifoTarget(Protocol):
    name: str

    def send_batch(self, batch: Sequence[Outgoing]) -> list[RefusedMessage]: ...


class FifoProducer:
    """Calls `on_window_hit` for each body that SQS accepts but will not deliver again."""

    def __init__(self, target: FifoTarget, on_window_hit: Callable[[], None] = lambda: None) -> None:
        self._target = target
        self._on_window_hit = on_window_hit
        self._sent_at: dict[bytes, float] = {}

    def send(self, event: Envelope, group: str | None = None, routing: Sequence[str] = ()) -> None:
        """Sends one event; its group is its source by default. See `outgoing_message` for `routing`."""
        self.send_all([outgoing_message(event, group, routing)])

    def send_all(self, messages: Sequence[Outgoing]) -> None:
        """Sends all in order, retries refused ones once after the others, and raises with those that are left."""
        for message in messages:
            require_valid_group(message.group)
        refused = self._send(dict(enumerate(messages)))
        left = [one for one in refused if one.permanent]
        left += self._send({one.position: messages[one.position] for one in refused if not one.permanent})
        lost = {one.position for one in left}
        # Accepted bodies are remembered as long as SQS does. A repetition does not extend the window.
        now = time.monotonic()
        self._sent_at = {digest: at for digest, at in self._sent_at.items() if now - at < DEDUPLICATION_WINDOW_SECONDS}
        for accepted in (message for position, message in enumerate(messages) if position not in lost):
            digest = hashlib.sha256(accepted.body.encode()).digest()
            if digest in self._sent_at:
                self._on_window_hit()
            else:
                self._sent_at[digest] = now
        if left:
            raise _send_error(self._target.name, len(messages), left)

    def _send(self, messages: Mapping[int, Outgoing]) -> list[RefusedMessage]:
        refused: list[RefusedMessage] = []
        for batch in split_batches(messages):
            positions = list(batch)
            response = self._target.send_batch(list(batch.values()))
            refused += [RefusedMessage(positions[one.position], one.code, one.permanent) for one in response]
        return refused


def _send_error(name: str, sent: int, left: Sequence[RefusedMessage]) -> ProducerMistaken | SendIncomplete:
    ordered = sorted(left, key=lambda one: one.position)
    which = ", ".join(f"number {one.position + 1} ({one.code})" for one in ordered)
    sentence = f"{name} refused {len(left)} of {sent} messages: {which}"
    if all(one.permanent for one in left):
        return ProducerMistaken(sentence)
    return SendIncomplete(sentence, tuple(one.position for one in ordered))
