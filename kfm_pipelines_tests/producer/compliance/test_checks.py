"""Every check passes good producers and catches the bad one it is for, and no other check does."""

from uuid import uuid4

import pytest

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.compliance import checks as fifo
from kfm_pipelines.producer.compliance import live
from kfm_pipelines.producer.compliance.checks import (
    AttributeNotInBody,
    BodyNotUnique,
    BytesNotCanonical,
    BytesNotRepeatable,
    EnvelopeBroken,
    GroupInvalid,
    Produce,
    Violation,
)
from kfm_pipelines.producer.compliance.live import LiveQueue, ReplayDelivered
from kfm_pipelines_tests.fixtures import fifo_producers


def violations(produce: Produce) -> dict[type[Violation], str]:
    found: dict[type[Violation], str] = {}
    for check in fifo.CHECKS:
        try:
            check(produce)
        except Violation as violation:
            found[type(violation)] = str(violation)
    return found


@pytest.mark.parametrize("check", fifo.CHECKS)
@pytest.mark.parametrize("produce", [fifo_producers.ours, fifo_producers.traced])
def test_a_good_producer_passes(check: fifo.Check, produce: Produce) -> None:
    check(produce)


@pytest.mark.parametrize(
    ("produce", "caught", "message"),
    [
        (fifo_producers.event_id_of_version_4, EnvelopeBroken, "event_id must be a UUID of version 7, not '123e4567"),
        (fifo_producers.no_dedupe_key, EnvelopeBroken, "the body must have dedupe_key"),
        (fifo_producers.foreign_source, EnvelopeBroken, "event_source must be kfm.<domain>.<pipeline>, not 'landsat'"),
        (fifo_producers.payload_forgotten, EnvelopeBroken, "payload must be an object with the given fields"),
        (fifo_producers.spaces, BytesNotCanonical, "must be canonical JSON"),
        (fifo_producers.random_event_id, BytesNotRepeatable, "the same event sent again must give the same body"),
        (fifo_producers.local_time, BytesNotRepeatable, "with its time at another offset"),
        (fifo_producers.one_key_for_all, BodyNotUnique, "another dedupe_key must give another body"),
        (fifo_producers.attribute_not_in_body, AttributeNotInBody, "attribute 'scene' differs between events"),
        (fifo_producers.group_with_spaces, GroupInvalid, "not 'remote sensing'"),
        (fifo_producers.group_at_random, GroupInvalid, "an event must keep its group"),
    ],
)
def test_a_bad_producer_is_caught_by_exactly_one_check(produce: Produce, caught: type[Violation], message: str) -> None:
    found = violations(produce)
    assert set(found) == {caught}
    assert message in found[caught]
    assert "\n" not in found[caught]


@pytest.mark.parametrize(
    ("produce", "caught"),
    [
        (fifo_producers.uniqueness_in_attributes, {EnvelopeBroken, BodyNotUnique, AttributeNotInBody}),
        (fifo_producers.unsorted_keys, {BytesNotCanonical, BytesNotRepeatable}),
        (fifo_producers.time_of_sending, {EnvelopeBroken, BytesNotRepeatable}),
        (fifo_producers.not_json, {EnvelopeBroken, BytesNotCanonical}),
    ],
)
def test_a_producer_with_several_mistakes_is_caught_for_each(produce: Produce, caught: set[type[Violation]]) -> None:
    assert set(violations(produce)) == caught


def test_the_payload_must_not_decide_the_order_of_the_keys() -> None:
    assert "in another order" in violations(fifo_producers.unsorted_keys)[BytesNotRepeatable]


@pytest.fixture
def queue(stack: Stack) -> str:
    name = f"compliance-{uuid4().hex[:8]}.fifo"
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    return sqs_client().create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]  # type: ignore[arg-type]


def live_violations(produce: Produce, queue: str) -> set[type[Violation]]:
    found: set[type[Violation]] = set()
    for check in live.LIVE_CHECKS:
        try:
            check(produce, LiveQueue(queue, wait_seconds=0))
        except Violation as violation:
            found.add(type(violation))
    return found


def test_a_good_producer_passes_on_a_real_queue_and_again_at_once(queue: str) -> None:
    for _ in range(2):
        assert live_violations(fifo_producers.ours, queue) == set()


def test_on_a_real_queue_a_replay_that_differs_is_delivered_twice(queue: str) -> None:
    assert live_violations(fifo_producers.random_event_id, queue) == {ReplayDelivered}


def test_on_a_real_queue_an_event_known_by_attributes_alone_is_lost(queue: str) -> None:
    # The first run takes the one body there is; after that SQS drops it whatever its attributes say.
    assert BodyNotUnique in live_violations(fifo_producers.uniqueness_in_attributes, queue)


@pytest.mark.slow
def test_live_checks_are_called_like_the_others(queue: str) -> None:
    checks = live.live_checks(queue)
    assert [check.__name__ for check in checks] == [check.__name__ for check in live.LIVE_CHECKS]
    checks[1](fifo_producers.ours)
    with pytest.raises(BodyNotUnique):
        checks[1](fifo_producers.one_key_for_all)


def test_a_queue_that_does_not_deduplicate_by_content_is_no_test(stack: Stack) -> None:
    url = sqs_client().create_queue(QueueName=f"compliance-{uuid4().hex[:8]}")["QueueUrl"]
    with pytest.raises(SettingsInvalid, match="ContentBasedDeduplication"):
        live.LIVE_CHECKS[0](fifo_producers.ours, LiveQueue(url))
