"""The message S3 sends once when a bucket's notifications are configured. It announces nothing."""

from collections.abc import Mapping

from kfm_pipelines.events.contracts import check_contract
from kfm_pipelines.events.notice import ObjectNotice


def matches(document: Mapping[str, object]) -> bool:
    return document.get("Event") == "s3:TestEvent"


def read(document: Mapping[str, object]) -> tuple[ObjectNotice, ...]:
    check_contract("s3-test-event", document)
    return ()
