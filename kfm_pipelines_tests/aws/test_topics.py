"""Where a message ends up: notices by their attributes, S3's own everywhere, FIFO in order and once."""

import json

import pytest

from kfm_pipelines.aws.clients import sns_client
from kfm_pipelines.aws.provision import provision
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.settings import Settings
from kfm_pipelines_tests.fixtures.aws.emulator import bodies, set_subscription, subscription_attributes, topic_arn


@pytest.fixture(autouse=True)
def provisioned(settings: Settings, datasets: Datasets) -> None:
    provision(settings, datasets)
    bodies(settings.queue)  # S3's test event


def publish(topic: str, body: str, **attributes: str) -> None:
    sent = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
    sns_client().publish(TopicArn=topic_arn(topic), Message=body, MessageAttributes=sent)  # type: ignore[arg-type]


def arrived(queue: str) -> list[str]:
    return sorted(json.loads(body)["Message"] for body in bodies(queue))


def test_high_priority_has_a_queue_of_its_own(settings: Settings) -> None:
    for priority in ("high", "normal", "low"):
        publish(settings.notice_topic, priority, dataset="usgs/streamflow", product="streamflow", priority=priority)
    assert arrived(settings.priority_queue) == ["high"]
    assert arrived(settings.queue) == ["low", "normal"]
    assert bodies(settings.fifo_queue) == []


def test_what_nobody_declared_goes_nowhere(settings: Settings) -> None:
    publish(settings.notice_topic, "other", dataset="usda/soil", product="streamflow", priority="high")
    publish(settings.notice_topic, "other", dataset="usgs/streamflow", product="soil", priority="normal")
    publish(settings.notice_topic, "other")
    assert [*bodies(settings.queue), *bodies(settings.priority_queue)] == []


def test_what_s3_announces_is_not_filtered(settings: Settings) -> None:
    publish(settings.topic, "no attributes at all")
    assert arrived(settings.queue) == ["no attributes at all"]
    assert bodies(settings.priority_queue) == []


def test_fifo_messages_come_as_they_were_sent_in_order_and_once(settings: Settings) -> None:
    for body in ("one", "two", "one", "three"):
        sns_client().publish(TopicArn=topic_arn(settings.fifo_queue), Message=body, MessageGroupId="g")
    assert bodies(settings.fifo_queue) == ["one", "two", "three"]


def test_a_new_declaration_is_let_through(settings: Settings, dataset: Dataset) -> None:
    moved = dataset.input.model_copy(update={"prefix": "usda/soil/"})
    soil = dataset.model_copy(update={"dataset": "usda/soil", "product": "soil", "input": moved})
    both = Datasets({dataset.dataset: dataset, soil.dataset: soil})

    lines = provision(settings, both)

    assert f"subscription of {settings.priority_queue} to {settings.notice_topic}: filter and delivery" in lines
    assert f"subscription of {settings.queue} to {settings.notice_topic}: filter and delivery" in lines
    assert not any(settings.fifo_queue in line for line in lines)
    publish(settings.notice_topic, "soil", dataset="usda/soil", product="soil", priority="high")
    assert arrived(settings.priority_queue) == ["soil"]
    assert provision(settings, both) == []


def test_a_filter_where_none_belongs_is_taken_off(settings: Settings, datasets: Datasets) -> None:
    set_subscription(settings.topic, settings.queue, "FilterPolicy", '{"dataset": ["none"]}')
    assert provision(settings, datasets) == [
        f"subscription of {settings.queue} to {settings.topic}: filter and delivery"
    ]
    publish(settings.topic, "again")
    assert arrived(settings.queue) == ["again"]


def test_raw_delivery_is_put_right(settings: Settings, datasets: Datasets) -> None:
    set_subscription(settings.fifo_queue, settings.fifo_queue, "RawMessageDelivery", "false")
    assert len(provision(settings, datasets)) == 1
    found = subscription_attributes(settings.fifo_queue, settings.fifo_queue)
    assert found["RawMessageDelivery"] == "true"


def test_the_subscriptions_of_others_stay(settings: Settings, datasets: Datasets) -> None:
    arn = topic_arn(settings.topic)
    sns_client().subscribe(TopicArn=arn, Protocol="email", Endpoint="hydrology@example.org")
    assert provision(settings, datasets) == []
    assert len(sns_client().list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]) == 2
