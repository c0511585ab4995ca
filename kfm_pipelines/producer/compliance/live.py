"""Checks against a real FIFO queue, which must be empty: they receive and delete whatever is on it."""

from dataclasses import dataclass, field, replace
from functools import partial, update_wrapper
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
    """A FIFO queue by URL. Each run uses new keys because SQS remembers those of the last one."""

    url: str
    wait_seconds: int = 2
    run: str = field(default_factory=lambda: uuid4().hex)

    def count_delivered(self, *messages: Outgoing) -> int:
        """Sends the messages and counts how many of them are delivered."""
        with translate_aws_errors(f"reading the settings of {self.url}"):
            settings = sqs_client().get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        if settings.get("ContentBasedDeduplication") != "true":
            raise SettingsInvalid(f"{self.url} must be a FIFO queue with ContentBasedDeduplication")
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
        """Deletes each message on receipt: a group delivers its next one only then."""
        bodies: list[str] = []
        while True:
            with translate_aws_errors(f"receiving from {self.url}"):
                response = sqs_client().receive_message(
                    QueueUrl=self.url, MaxNumberOfMessages=10, WaitTimeSeconds=self.wait_seconds
                )
                for message in response.get("Messages", []):
                    bodies.append(message["Body"])
                    sqs_client().delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
            if not response.get("Messages"):
                return bodies


def replay_is_delivered_once(produce: Produce, queue: LiveQueue) -> None:
    """The same event sent twice within five minutes is delivered once."""
    key = f"replay-{queue.run}"
    count = queue.count_delivered(*(produce(key, PAYLOAD, EVENT_TIME) for _ in range(2)))
    if count != 1:
        raise ReplayDelivered(f"an event sent twice within five minutes must be delivered once, not {count} times")


def other_key_is_delivered_too(produce: Produce, queue: LiveQueue) -> None:
    """Events that differ only in dedupe_key are both delivered."""
    count = queue.count_delivered(*(produce(f"{number}-{queue.run}", PAYLOAD, EVENT_TIME) for number in range(2)))
    if count != 2:
        raise BodyNotUnique(f"two events with different dedupe_keys must be delivered as two messages, not {count}")


def attributes_make_no_difference(produce: Produce, queue: LiveQueue) -> None:
    """SQS takes the same body with other attributes for the same message."""
    message = produce(f"attributes-{queue.run}", PAYLOAD, EVENT_TIME)
    count = queue.count_delivered(message, replace(message, attributes={**message.attributes, "unique_key": queue.run}))
    if count != 1:
        raise ReplayDelivered(f"a body sent twice with different attributes must be delivered once, not {count} times")


LIVE_CHECKS = (replay_is_delivered_once, other_key_is_delivered_too, attributes_make_no_difference)


def live_checks(queue_url: str) -> tuple[Check, ...]:
    """Returns the live checks bound to this queue, callable like `CHECKS`."""
    return tuple(update_wrapper(partial(check, queue=LiveQueue(queue_url)), check) for check in LIVE_CHECKS)
