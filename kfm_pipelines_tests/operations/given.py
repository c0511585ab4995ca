"""What the tests of this folder start from: messages that are refused until the declaration allows them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kfm_pipelines.messaging.clients import sqs_client
from kfm_pipelines.messaging.queue import Queue
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.settings import load_settings
from kfm_pipelines_tests.site import Site

SMALL = "max_bytes: 10"
LARGE = "max_bytes: 268435456"


def declare(site: Site, old: str, new: str) -> Workshop:
    """Change the site's declaration, as a reviewer would; a workshop that has read the new one."""
    path = site.workshop.settings.resources / "datasets" / "usgs-streamflow.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return Workshop(load_settings(site.environment))


@contextmanager
def refusing(site: Site) -> Iterator[Site]:
    """The same site, where no object is small enough to be taken."""
    workshop = declare(site, LARGE, SMALL)
    try:
        yield Site(workshop, site.environment, site.root)
    finally:
        declare(site, SMALL, LARGE)
        workshop.close()


@dataclass(frozen=True)
class InQueue:
    body: str
    attributes: dict[str, str]
    group: str | None


def messages_in(queue: Queue) -> list[InQueue]:
    """Everything in the queue, without taking it out."""
    url = sqs_client().get_queue_url(QueueName=queue.name)["QueueUrl"]
    found = []
    while True:
        received = (
            sqs_client()
            .receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=30,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
            .get("Messages", [])
        )
        if not received:
            break
        found += received
    for message in found:
        sqs_client().change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
    return [
        InQueue(
            message["Body"],
            {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()},
            {str(name): value for name, value in message.get("Attributes", {}).items()}.get("MessageGroupId"),
        )
        for message in found
    ]


def too_large(site: Site, hours: int) -> list[str]:
    """One message for each hour, of objects that are too large as long as the site is `refusing`."""
    return [site.s3_message(site.put(hour)) for hour in range(hours)]


def stored(site: Site, path: str) -> dict[str, object]:
    document: dict[str, object] = json.loads((site.data / path).read_text())
    return document


def let_sqs_give_up(queue: Queue) -> None:
    """Receive what is in the queue and never delete it, until SQS has moved it to the dead-letter queue."""
    while queue.depth().waiting:
        for message in sqs_client().receive_message(QueueUrl=queue.url, MaxNumberOfMessages=10).get("Messages", []):
            sqs_client().change_message_visibility(
                QueueUrl=queue.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
