"""Reads a queue message of any accepted shape into notices.

A new shape is a pair of functions, a contract and a line in OBJECT_SHAPES. The first shape that matches reads the
document. Matching looks only at the fields that identify a shape, so that a broken message is refused as that shape.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kfm_pipelines.errors import ShapeUnknown
from kfm_pipelines.events.body import read_body
from kfm_pipelines.events.contracts import check_contract
from kfm_pipelines.events.notice import Notice, ObjectNotice
from kfm_pipelines.events.shapes import auto_update, feeds, fifo_envelope, s3
from kfm_pipelines.text import quote_value

Matches = Callable[[Mapping[str, object]], bool]
Reads = Callable[[Mapping[str, Any]], tuple[ObjectNotice, ...]]


def _has(field: str) -> Matches:
    return lambda document: field in document


# Shapes that name their object themselves, in the order they are tried.
OBJECT_SHAPES: tuple[tuple[Matches, Reads], ...] = (
    (_has("Records"), s3.read_notification),
    (_has("detail-type"), s3.read_eventbridge),
    (s3.is_envelope, s3.read_envelope),
    (auto_update.matches, auto_update.read),
    (_has("S3Bucket"), feeds.read_nexrad),
    (_has("landsat_product_id"), feeds.read_landsat),
    (feeds.is_sentinel_1, feeds.read_sentinel_1),
    (feeds.is_sentinel_2, feeds.read_sentinel_2),
    (s3.is_test_event, s3.read_test_event),
)
_SNS_CONTROL = ("SubscriptionConfirmation", "UnsubscribeConfirmation")


def normalise(text: str | bytes) -> tuple[Notice, ...]:
    """Returns the notices in a queue message: none for a control message. Raises MessageRefused for anything else."""
    document = _require_object(read_body(text))
    if _is_sns_control(document):
        return ()
    if _is_sns_notification(document):
        document = _require_object(_unwrap_sns(document))
    notices = read_object_shape(document)
    if notices is not None:
        return notices
    if fifo_envelope.matches(document):
        return fifo_envelope.read(document, read_object_shape)
    names = ", ".join(quote_value(name) for name in sorted(document)[:8]) or "none"
    more = f" and {len(document) - 8} more" if len(document) > 8 else ""
    raise ShapeUnknown(f"message has no known shape; its top-level fields are {names}{more}")


def read_object_shape(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...] | None:
    """Returns the notices of the first shape that matches, None if none does."""
    return next((read(document) for matches, read in OBJECT_SHAPES if matches(document)), None)


def _require_object(document: object) -> Mapping[str, object]:
    if not isinstance(document, dict):
        raise ShapeUnknown(f"message must be a JSON object, not {quote_value(document)}")
    return document


def _is_sns_control(document: Mapping[str, object]) -> bool:
    return document.get("Type") in _SNS_CONTROL and "TopicArn" in document


def _is_sns_notification(document: Mapping[str, object]) -> bool:
    return document.get("Type") == "Notification" and ("TopicArn" in document or "Message" in document)


def _unwrap_sns(document: Mapping[str, Any]) -> object:
    """Leaves the signature to the queue policy. A second envelope means topics chained by mistake."""
    check_contract("sns-notification", document)
    inner = read_body(document["Message"])
    if isinstance(inner, dict) and (_is_sns_notification(inner) or _is_sns_control(inner)):
        raise ShapeUnknown("SNS notification contains another SNS notification; only one envelope is unwrapped")
    return inner
