"""What the tests of this folder start from: the shipped declarations, and notices and events with chosen fields."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any

from kfm_pipelines.datasets import Datasets, load_datasets
from kfm_pipelines.events import IngestEvent, ObjectNotice, fold, normalise
from kfm_pipelines.settings import shipped

NOON = datetime(2025, 12, 4, 12, tzinfo=UTC)
KEY_AT_03 = "usgs/streamflow/2025/12/04/03/streamflow.parquet"


@cache
def declared() -> Datasets:
    return load_datasets(shipped("resources"))


def notice(**fields: Any) -> ObjectNotice:
    said = {
        "shape": "s3-notification",
        "identity": "a" * 64,
        "bucket": "kfm-ingest",
        "object_key": KEY_AT_03,
        "etag": "abc123",
        "version_id": None,
        "size": 1000,
        "sequencer": None,
        "event_time": NOON,
        "dataset": None,
        "granule_start": None,
        "granule_end": None,
        "priority": "normal",
    }
    return ObjectNotice(**(said | fields))


def event(**fields: Any) -> IngestEvent:
    return fold(notice(**fields), declared())


def objects(document: object) -> tuple[ObjectNotice, ...]:
    """What a message says about objects; one that says something else is not what the test is about."""
    notices = normalise(json.dumps(document))
    assert all(isinstance(said, ObjectNotice) for said in notices)
    return notices  # type: ignore[return-value]
