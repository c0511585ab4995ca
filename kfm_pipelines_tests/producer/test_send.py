"""The FIFO producer delivers each event once and in order, and names every message that was refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from kfm_pipelines.aws.batches import Outgoing, split_batches
from kfm_pipelines.aws.clients import sns_client, sqs_client
from kfm_pipelines.aws.provision import provision
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.errors import ProducerMistaken, SendIncomplete
from kfm_pipelines.producer.envelope import Envelope, envelope, outgoing_message
from kfm_pipelines.producer.upload import FifoProducer, Topic
from kfm_pipelines.settings import Settings
from kfm_pipelines_tests.fixtures.aws.emulator import bodies, set_queue

WHEN = datetime(2025, 12, 4, tzinfo=UTC)


@pytest.fixture(autouse=True)
def provisioned(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)


@pytest.fixture(params=["topic", "queue"])
def producer(request: pytest.FixtureRequest, settings: Settings) -> FifoProducer:
    return FifoProducer(Topic(settings.fifo_queue) if request.param == "topic" else Queue(settings.fifo_queue))


def event(number: int) -> Envelope:
    return envelope("kfm.usgs.streamflow", f"event {number}", WHEN, {"number": number, "kind": "test"})


def messages(count: int) -> list[Outgoing]:
    return [outgoing_message(event(number)) for number in range(count)]


@contextmanager
def losing(lost: set[str], times: int) -> Iterator[None]:
    """Makes both services refuse these bodies this many times, as AWS reports it."""
    left = dict.fromkeys(lost, times)
    missing: list[dict[str, Any]] = []

    def lose(params: dict[str, Any], **_: Any) -> Any:
        field = next(name for name in params if name.endswith("Entries"))
        kept = []
        for entry in params[field]:
            body = entry.get("Message") or entry["MessageBody"]
            if left.get(body, 0):
                left[body] -= 1
                missing.append({"Id": entry["Id"], "Code": "InternalError", "SenderFault": False})
            else:
                kept.append(entry)
        # A batch must not be empty; the emulator gets a body it knows already.
        return {**params, field: kept or [{**params[field][0], "Id": "unasked", **_known(params[field][0])}]}

    def report(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Failed"] = [*parsed.get("Failed", []), *missing]
        missing.clear()

    hooks = [(sqs_client(), "sqs.SendMessageBatch"), (sns_client(), "sns.PublishBatch")]
    for client, call in hooks:
        client.meta.events.register(f"provide-client-params.{call}", lose)
        client.meta.events.register(f"after-call.{call}", report)
    try:
        yield
    finally:
        for client, call in hooks:
            client.meta.events.unregister(f"provide-client-params.{call}", lose)
            client.meta.events.unregister(f"after-call.{call}", report)


def _known(entry: dict[str, Any]) -> dict[str, str]:
    return {"Message" if "Message" in entry else "MessageBody": event(0).body}


def test_an_event_is_delivered_once_however_often_it_is_sent(producer: FifoProducer, settings: Settings) -> None:
    for _ in range(3):
        producer.send(event(1))
    producer.send(event(2))
    assert bodies(settings.fifo_queue) == [event(1).body, event(2).body]


def test_group_and_routing_attributes_are_sent(producer: FifoProducer, settings: Settings) -> None:
    producer.send(event(1), group="gauge-06866500", routing=["kind"])
    [message] = Queue(settings.fifo_queue).receive()
    assert message.group == "gauge-06866500"
    assert message.attributes == {"event_source": "kfm.usgs.streamflow", "kind": "test"}


def test_several_batches_keep_their_order(producer: FifoProducer, settings: Settings) -> None:
    producer.send_all(messages(23))
    assert bodies(settings.fifo_queue) == [event(number).body for number in range(23)]


def test_refused_messages_are_sent_once_more(producer: FifoProducer, settings: Settings) -> None:
    with losing({event(1).body, event(12).body}, times=1):
        producer.send_all(messages(15))
    arrived = bodies(settings.fifo_queue)
    assert sorted(arrived) == sorted(event(number).body for number in range(15))
    assert arrived[-2:] == [event(1).body, event(12).body]


def test_messages_refused_twice_are_named(producer: FifoProducer, settings: Settings) -> None:
    with losing({event(1).body, event(12).body}, times=2), pytest.raises(SendIncomplete) as raised:
        producer.send_all(messages(15))
    assert raised.value.positions == (1, 12)
    assert "refused 2 of 15 messages: number 2 (InternalError), number 13 (InternalError)" in str(raised.value)
    assert len(bodies(settings.fifo_queue)) == 13


def test_a_permanent_refusal_is_a_producer_error(producer: FifoProducer, settings: Settings) -> None:
    set_queue(settings.fifo_queue, MaximumMessageSize="262144")  # the limit of a topic
    large = Outgoing("x" * 262_145, {}, "g")
    with pytest.raises(ProducerMistaken, match=r"refused 1 of 2 messages: number 2 \(Invalid"):
        producer.send_all([outgoing_message(event(1)), large])
    assert bodies(settings.fifo_queue) == [event(1).body]


def test_an_illegal_group_is_refused_before_anything_is_sent(producer: FifoProducer, settings: Settings) -> None:
    with pytest.raises(ProducerMistaken, match="message group"):
        producer.send_all([outgoing_message(event(1)), Outgoing(event(2).body, {}, "two words")])
    assert bodies(settings.fifo_queue) == []


def test_a_batch_is_never_larger_than_sns_accepts() -> None:
    sizes = [100_000, 100_000, 100_000, 300_000, 1] + [1] * 11
    cut = list(split_batches({n: Outgoing("é" * (size // 2) or "x", {}, "g") for n, size in enumerate(sizes)}))
    assert [list(batch) for batch in cut] == [[0, 1], [2], [3], [*range(4, 14)], [14, 15]]
