"""The message S3 sends once when a bucket's notifications are configured. It announces nothing."""

from collections.abc import Mapping

from kfm_pipelines.events.notice import ObjectNotice


def matches(document: Mapping[str, object]) -> bool:
    return document.get("Event") == "s3:TestEvent"


def read(_document: Mapping[str, object]) -> tuple[ObjectNotice, ...]:
    return ()
