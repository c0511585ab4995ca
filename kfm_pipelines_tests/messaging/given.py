"""What tests ask the emulator, past our own code."""

import json
from typing import Any

from kfm_pipelines.messaging.clients import sns_client, sqs_client


def queue_url(queue: str) -> str:
    return sqs_client().get_queue_url(QueueName=queue)["QueueUrl"]


def queue_attributes(queue: str) -> dict[str, str]:
    answer = sqs_client().get_queue_attributes(QueueUrl=queue_url(queue), AttributeNames=["All"])
    return {str(name): value for name, value in answer["Attributes"].items()}


def set_queue(queue: str, **attributes: str) -> None:
    sqs_client().set_queue_attributes(QueueUrl=queue_url(queue), Attributes=attributes)  # type: ignore[arg-type]


def topic_arn(name: str) -> str:
    pages = sns_client().get_paginator("list_topics").paginate()
    return next(one["TopicArn"] for page in pages for one in page["Topics"] if one["TopicArn"].endswith(f":{name}"))


def subscription_arn(topic: str, queue: str) -> str:
    subscriptions = sns_client().list_subscriptions_by_topic(TopicArn=topic_arn(topic))["Subscriptions"]
    return next(one["SubscriptionArn"] for one in subscriptions if one["Endpoint"].endswith(f":{queue}"))


def subscription_attributes(topic: str, queue: str) -> dict[str, str]:
    arn = subscription_arn(topic, queue)
    return sns_client().get_subscription_attributes(SubscriptionArn=arn)["Attributes"]


def set_subscription(topic: str, queue: str, name: str, value: str) -> None:
    arn = subscription_arn(topic, queue)
    sns_client().set_subscription_attributes(SubscriptionArn=arn, AttributeName=name, AttributeValue=value)


def listening(topic: str) -> str:
    """A queue that somebody has subscribed to the topic."""
    name = f"{topic}-somebody"
    sqs_client().create_queue(QueueName=name)
    endpoint = queue_attributes(name)["QueueArn"]
    sns_client().subscribe(TopicArn=topic_arn(topic), Protocol="sqs", Endpoint=endpoint)
    return name


def bodies(queue: str) -> list[str]:
    """Every message that is there now, taken off the queue, in the order it came."""
    found: list[str] = []
    while True:
        answer = sqs_client().receive_message(QueueUrl=queue_url(queue), MaxNumberOfMessages=10)
        if not answer.get("Messages"):
            return found
        for message in answer["Messages"]:
            found.append(message["Body"])
            sqs_client().delete_message(QueueUrl=queue_url(queue), ReceiptHandle=message["ReceiptHandle"])


def inside_sns(body: str) -> Any:
    return json.loads(json.loads(body)["Message"])
