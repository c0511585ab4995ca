"""The checks that need a real FIFO queue: what SQS itself delivers, and what it drops inside its five-minute window.

Give them a queue of your own with nothing else on it: whatever is there is received, and what they sent is deleted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from uuid import uuid4

from kfm_pipelines.aws.batches import Outgoing, text_attributes
from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.producer.compliance.checks import EVENT_TIME, PAYLOAD, BodyNotUnique, Check, Produce, Violation


class ReplayDelivered(Violation):
    """The queue delivered one event twice within five minutes."""


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """A FIFO queue by its address. Keys are new with every run, or SQS would remember those of the last one."""

    url: str
    wait_seconds: int = 2
    run: str = field(default_factory=lambda: uuid4().hex)

    def count_delivered(self, *messages: Outgoing) -> int:
        """Send these and count how many of them come out."""
        self._require_deduplication()
        for message in messages:
            with translate_aws_errors(f"sending to {self.url}"):
                sqs_client().send_message(
                    QueueUrl=self.url,
                    MessageBody=message.body,
                    MessageAttributes=text_attributes(message.attributes),
                    MessageGroupId=message.group,
                )
        return sum(body in {message.body for message in messages} for body in self._receive_all())

    def _receive_all(self) -> list[str]:
        """Everything there, deleted as it comes: a group gives its next message only then."""
        bodies: list[str] = []
        while True:
            with translate_aws_errors(f"receiving from {self.url}"):
                answer = sqs_client().receive_message(
                    QueueUrl=self.url, MaxNumberOfMessages=10, WaitTimeSeconds=self.wait_seconds
                )
                for message in answer.get("Messages", []):
                    bodies.append(message["Body"])
                    sqs_client().delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
            if not answer.get("Messages"):
                return bodies

    def _require_deduplication(self) -> None:
        with translate_aws_errors(f"asking about {self.url}"):
            said = sqs_client().get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        if said.get("ContentBasedDeduplication") != "true":
            raise SettingsInvalid(f"{self.url} must be a FIFO queue with ContentBasedDeduplication")


def replay_is_delivered_once(produce: Produce, queue: LiveQueue) -> None:
    """The same event twice inside the window is one message."""
    key = f"replay-{queue.run}"
    count = queue.count_delivered(*(produce(key, PAYLOAD, EVENT_TIME) for _ in range(2)))
    if count != 1:
        raise ReplayDelivered(f"an event sent twice within five minutes must be delivered once, not {count} times")


def other_key_is_delivered_too(produce: Produce, queue: LiveQueue) -> None:
    """Two events that differ only in their dedupe_key are two messages."""
    count = queue.count_delivered(*(produce(f"{number}-{queue.run}", PAYLOAD, EVENT_TIME) for number in range(2)))
    if count != 2:
        raise BodyNotUnique(f"two events with different dedupe_keys must be delivered as two messages, not {count}")


def attributes_make_no_difference(produce: Produce, queue: LiveQueue) -> None:
    """The same body with other attributes is the same message to SQS, which is why they cannot carry what is unique."""
    message = produce(f"attributes-{queue.run}", PAYLOAD, EVENT_TIME)
    count = queue.count_delivered(message, replace(message, attributes={**message.attributes, "unique_key": queue.run}))
    if count != 1:
        raise ReplayDelivered(f"a body sent twice with different attributes must be delivered once, not {count} times")


LiveCheck = Callable[[Produce, LiveQueue], None]
LIVE_CHECKS: tuple[LiveCheck, ...] = (
    replay_is_delivered_once,
    other_key_is_delivered_too,
    attributes_make_no_difference,
)


def live_checks(queue_url: str) -> tuple[Check, ...]:
    """The live checks on this queue, to be called like the others."""
    return tuple(_bind_queue(LiveQueue(queue_url), check) for check in LIVE_CHECKS)


def _bind_queue(queue: LiveQueue, check: LiveCheck) -> Check:
    @wraps(check)
    def bound(produce: Produce) -> None:
        check(produce, queue)

    return bound
