"""One SQS queue, standard or FIFO: receive, delete, send, depth."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kfm_pipelines.aws.batches import Outgoing, RefusedMessage, batch_entries, parse_refusals
from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import SettingsInvalid

if TYPE_CHECKING:
    from mypy_boto3_sqs import type_defs

BATCH_SIZE = 10
MAX_ATTRIBUTES = 10
STRING_TYPE = "String"


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery. Only FIFO queues set group and sequence."""

    body: str
    receipt: str = ""
    message_id: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)  # of attributes that are not text; binary values are Base64
    group: str | None = None
    sequence: int | None = None
    receives: int = 1
    moved_from: str | None = None  # the source queue, when this is a dead-letter queue
    sent_at: datetime | None = None  # by the clock of SQS
    received_at: datetime | None = None  # by our clock


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Approximate, as SQS reports it."""

    waiting: int
    in_flight: int


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name
        self._cached_url: str | None = None

    def receive(self, wait_seconds: int = 0) -> list[Message]:
        """Receives up to ten messages; they stay hidden from others until the visibility timeout ends."""
        with self._queue_call("receiving from") as url:
            response = sqs_client().receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=BATCH_SIZE,
                WaitTimeSeconds=wait_seconds,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=[
                    "MessageGroupId",
                    "SequenceNumber",
                    "ApproximateReceiveCount",
                    "DeadLetterQueueSourceArn",
                    "SentTimestamp",
                ],
            )
        now = datetime.now(UTC)
        return [_parse_message(received, now) for received in response.get("Messages", [])]

    def delete(self, messages: Sequence[Message]) -> int:
        """Returns how many were deleted. Tries twice, because an undeleted message blocks its FIFO group."""
        left = [message for batch in _split_batches(messages) for message in self._delete_batch(batch)]
        left = [message for batch in _split_batches(left) for message in self._delete_batch(batch)]
        return len(messages) - len(left)

    def send(
        self,
        body: str,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        types: Mapping[str, str] | None = None,
    ) -> None:
        """Sends one message. FIFO queues need a group and deduplicate by body, or by the id when there is one."""
        fifo = {"MessageGroupId": group, "MessageDeduplicationId": deduplication_id}
        with self._queue_call("sending to") as url:
            sqs_client().send_message(
                QueueUrl=url,
                MessageBody=body,
                MessageAttributes={
                    name: _encode_attribute(value, (types or {}).get(name, STRING_TYPE))
                    for name, value in (attributes or {}).items()
                },
                **{name: value for name, value in fifo.items() if value is not None},  # type: ignore[arg-type]
            )

    def send_batch(self, batch: Sequence[Outgoing]) -> list[RefusedMessage]:
        """Sends up to ten messages to a FIFO queue and returns those that SQS refused."""
        with translate_aws_errors(f"sending to queue {self.name}"):
            response = sqs_client().send_message_batch(QueueUrl=self.url, Entries=batch_entries(batch, "MessageBody"))
        return parse_refusals(response)

    def depth(self) -> QueueDepth:
        counts = self.attributes()
        return QueueDepth(
            int(counts["ApproximateNumberOfMessages"]), int(counts["ApproximateNumberOfMessagesNotVisible"])
        )

    def attributes(self) -> dict[str, str]:
        with self._queue_call("reading the settings of") as url:
            response = sqs_client().get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        return {str(name): value for name, value in response["Attributes"].items()}

    def _delete_batch(self, batch: Sequence[Message]) -> list[Message]:
        """Returns the messages SQS failed to delete: the batch response has status 200 even then."""
        entries = [{"Id": str(number), "ReceiptHandle": message.receipt} for number, message in enumerate(batch)]
        with self._queue_call("deleting from") as url:
            response = sqs_client().delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]
        return [batch[int(failed["Id"])] for failed in response.get("Failed", [])]

    @contextmanager
    def _queue_call(self, operation: str) -> Iterator[str]:
        """Yields the queue's URL for one call and reports a queue that was deleted meanwhile."""
        with translate_aws_errors(f"{operation} queue {self.name}"):
            try:
                yield self.url
            except sqs_client().exceptions.QueueDoesNotExist:
                self._cached_url = None
                raise self._missing_queue_error() from None

    def _missing_queue_error(self) -> SettingsInvalid:
        return SettingsInvalid(f"there is no queue {self.name!r}; `kfm doctor --fix` creates it")

    @property
    def url(self) -> str:
        if self._cached_url is None:
            sqs = sqs_client()
            with translate_aws_errors(f"looking for queue {self.name}"):
                try:
                    self._cached_url = sqs.get_queue_url(QueueName=self.name)["QueueUrl"]
                except sqs.exceptions.QueueDoesNotExist:
                    raise self._missing_queue_error() from None
        return self._cached_url


def _parse_message(received: "type_defs.MessageTypeDef", now: datetime) -> Message:
    system = {str(name): value for name, value in received.get("Attributes", {}).items()}
    sequence = system.get("SequenceNumber")
    attributes = received.get("MessageAttributes", {})
    return Message(
        body=received["Body"],
        receipt=received["ReceiptHandle"],
        message_id=received["MessageId"],
        attributes={name: _attribute_text(value) for name, value in attributes.items()},
        types={name: value["DataType"] for name, value in attributes.items() if value["DataType"] != STRING_TYPE},
        group=system.get("MessageGroupId"),
        sequence=int(sequence) if sequence else None,
        receives=int(system.get("ApproximateReceiveCount", 1)),
        moved_from=system.get("DeadLetterQueueSourceArn", "").rsplit(":", 1)[-1] or None,
        sent_at=datetime.fromtimestamp(int(sent) / 1000, UTC) if (sent := system.get("SentTimestamp")) else None,
        received_at=now,
    )


def _attribute_text(value: "type_defs.MessageAttributeValueOutputTypeDef") -> str:
    return b64encode(value["BinaryValue"]).decode() if "BinaryValue" in value else value["StringValue"]


def _encode_attribute(value: str, kind: str) -> "type_defs.MessageAttributeValueTypeDef":
    if kind.startswith("Binary"):
        return {"DataType": kind, "BinaryValue": b64decode(value)}
    return {"DataType": kind, "StringValue": value}


def _split_batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    for start in range(0, len(messages), BATCH_SIZE):
        yield messages[start : start + BATCH_SIZE]
