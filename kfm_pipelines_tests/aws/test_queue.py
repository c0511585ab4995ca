"""One SQS queue: received messages stay hidden, deleted ones are gone, a missing queue is reported."""

import json
from uuid import uuid4

import pytest

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.queue import Message, Queue, QueueDepth
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.local.stack import Stack


@pytest.fixture
def queue(stack: Stack) -> Queue:
    name = f"queue-{uuid4().hex[:8]}"
    sqs_client().create_queue(QueueName=name, Attributes={"VisibilityTimeout": "120"})
    return Queue(name)


def receive_all(queue: Queue) -> list[Message]:
    return [message for _ in range(10) for message in queue.receive()]


@pytest.mark.parametrize("body", ["{}", "not JSON", json.dumps({"key": "ü \u2028 \U0001d4b3"}), "x" * 200_000])
def test_a_body_comes_out_as_it_went_in(queue: Queue, body: str) -> None:
    queue.send(body)
    assert [message.body for message in queue.receive()] == [body]


def test_an_empty_queue_gives_nothing(queue: Queue) -> None:
    assert queue.receive() == []
    assert queue.depth() == QueueDepth(waiting=0, in_flight=0)


def test_what_is_received_is_hidden_and_counted_until_it_is_deleted(queue: Queue) -> None:
    queue.send("one")
    queue.send("two")
    assert queue.depth() == QueueDepth(waiting=2, in_flight=0)

    messages = receive_all(queue)
    assert queue.receive() == []
    assert queue.depth() == QueueDepth(waiting=0, in_flight=2)

    assert queue.delete(messages) == 2
    assert queue.depth() == QueueDepth(waiting=0, in_flight=0)


def test_more_than_sqs_takes_at_once_is_received_and_deleted_in_batches(queue: Queue) -> None:
    for number in range(23):
        queue.send(str(number))
    first = queue.receive()
    assert len(first) <= 10

    messages = [*first, *receive_all(queue)]

    assert {message.body for message in messages} == {str(number) for number in range(23)}
    assert queue.delete(messages) == 23
    assert queue.depth() == QueueDepth(waiting=0, in_flight=0)


def test_deleting_nothing_asks_nobody() -> None:
    assert Queue("no-such-queue").delete([]) == 0


def test_deleting_again_does_no_harm(queue: Queue) -> None:
    queue.send("one")
    queue.send("two")
    one, two = receive_all(queue)
    queue.delete([one])
    queue.delete([one])
    assert queue.depth() == QueueDepth(waiting=0, in_flight=1)
    queue.delete([two])


def test_a_missing_queue_is_one_sentence_with_a_remedy(stack: Stack) -> None:
    absent = Queue("no-such-queue")
    for ask in (absent.receive, absent.depth, lambda: absent.send("x")):
        with pytest.raises(
            SettingsInvalid, match=r"^there is no queue 'no-such-queue'; `kfm doctor --fix` creates it$"
        ):
            ask()


def test_a_queue_made_later_is_found(stack: Stack) -> None:
    queue = Queue(f"late-{uuid4().hex[:8]}")
    with pytest.raises(SettingsInvalid):
        queue.receive()
    sqs_client().create_queue(QueueName=queue.name)
    assert queue.receive() == []
