"""Several messages in one call, and which of them SNS or SQS did not take: it answers 200 and says so in the answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it is handed to SNS or SQS."""

    body: str
    attributes: Mapping[str, str]
    group: str


MAX_MESSAGES = 10
MAX_BYTES = 256 * 1024  # of SNS; SQS takes more


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """One message that was not taken: where it stood in the batch, why, and whether it would never be."""

    position: int
    code: str
    permanent: bool


def batch_entries(batch: Sequence[Outgoing], body_field: Literal["Message", "MessageBody"]) -> list[Any]:
    """The batch as AWS wants it; SNS and SQS differ in one name."""
    return [
        {
            "Id": str(position),
            body_field: message.body,
            "MessageAttributes": text_attributes(message.attributes),
            "MessageGroupId": message.group,
        }
        for position, message in enumerate(batch)
    ]


def parse_refusals(response: Mapping[str, Any]) -> list[RefusedMessage]:
    failed = response.get("Failed", [])
    return [RefusedMessage(int(one["Id"]), str(one["Code"]), bool(one["SenderFault"])) for one in failed]


def text_attributes(attributes: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}


def split_batches(messages: Mapping[int, Outgoing]) -> Iterator[dict[int, Outgoing]]:
    """As many messages at a time as one call takes, in order, each with its position."""
    batch: dict[int, Outgoing] = {}
    room = MAX_BYTES
    for position, message in messages.items():
        size = _message_size(message)
        if batch and (len(batch) == MAX_MESSAGES or size > room):
            yield batch
            batch, room = {}, MAX_BYTES
        batch[position] = message
        room -= size
    if batch:
        yield batch


def _message_size(message: Outgoing) -> int:
    texts = [message.body, *message.attributes, *message.attributes.values(), *("String" for _ in message.attributes)]
    return sum(len(text.encode()) for text in texts)
