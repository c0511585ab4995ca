"""The envelope SNS puts around a message on its way to a queue without raw delivery.

Signatures are not checked: the queue policy, not the body, decides who may send.
"""

from collections.abc import Mapping
from typing import Any

from kfm_pipelines.errors import ShapeUnknown
from kfm_pipelines.events.body import read_body
from kfm_pipelines.events.contracts import check_contract

_CONTROL = ("SubscriptionConfirmation", "UnsubscribeConfirmation")


def is_control(document: Mapping[str, object]) -> bool:
    """SNS talking about the subscription itself: acknowledged, never an event."""
    return document.get("Type") in _CONTROL and "TopicArn" in document


def is_notification(document: Mapping[str, object]) -> bool:
    return document.get("Type") == "Notification" and ("TopicArn" in document or "Message" in document)


def unwrap(document: Mapping[str, Any]) -> object:
    """The message inside. One envelope only: a second one means topics are chained by mistake."""
    check_contract("sns-notification", document)
    inner = read_body(document["Message"])
    if isinstance(inner, dict) and (is_notification(inner) or is_control(inner)):
        raise ShapeUnknown("SNS notification holds another SNS notification; one envelope is read, not two")
    return inner
