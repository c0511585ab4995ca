"""Batch calls of SNS and SQS: entries, sizes, and the refusals that come inside a response with status 200."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Outgoing:
    body: str
    attributes: Mapping[str, str]
    group: str


MAX_MESSAGES = 10
MAX_BYTES = 256 * 1024  # the limit of SNS; SQS takes more


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """One message of a batch that was refused; `permanent` when sending it again would not help."""

    position: int
    code: str
    permanent: bool


def batch_entries(batch: Sequence[Outgoing], body_field: Literal["Message", "MessageBody"]) -> list[Any]:
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
    """Yields as many messages as one call takes, in order, by their position."""
    batch: dict[int, Outgoing] = {}
    free = MAX_BYTES
    for position, message in messages.items():
        attributes = [f"{name}String{value}" for name, value in message.attributes.items()]
        size = sum(len(text.encode()) for text in (message.body, *attributes))
        if batch and (len(batch) == MAX_MESSAGES or size > free):
            yield batch
            batch, free = {}, MAX_BYTES
        batch[position] = message
        free -= size
    if batch:
        yield batch
