"""A notice about an object that is split is recorded as a whole: all of its events, or none."""

import json
from typing import Any

import pytest

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.inbox import drain, parse
from kfm_pipelines.inbox.drain import record_safely
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines.inbox.record import record
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines_tests.fixtures.aws.messages import s3_removal
from kfm_pipelines_tests.fixtures.sites.site import START

MEMBERS = [f"m{number:03}" for number in range(105)]


@pytest.fixture
def counties(dataset: Dataset) -> Datasets:
    document = dataset.model_dump(mode="json")
    document["key"]["split_by"] = {"column": "site_no", "members": MEMBERS}
    return Datasets({dataset.dataset: Dataset.model_validate(document)})


def notification(counties: Datasets, hour: int = 0, **changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "bucket": counties["usgs/streamflow"].input.bucket,
        "object_key": f"usgs/streamflow/2025/12/04/{hour:02}/state.parquet",
        "etag": "a" * 32,
        "size": 1,
        "version_id": None,
        "event_time": START,
    }
    return s3_notification(**{**known, **changes})


def message(*notifications: dict[str, Any]) -> Message:
    records = [record for one in notifications for record in one["Records"]]
    return Message(body=json.dumps({"Records": records}), receipt="", message_id="")


def read(counties: Datasets, *notifications: dict[str, Any]) -> Delivery:
    return read_message(message(*notifications), counties)


def test_all_events_of_a_notice_are_recorded_together_and_once(database: Database, counties: Datasets) -> None:
    delivery = read(counties, notification(counties))
    assert len(delivery.events) == 105
    first = record(database, "q", [delivery], counties)
    again = record(database, "q", [delivery, delivery], counties)
    assert (first.counts.recorded, first.counts.duplicates) == (1, 0)
    assert (again.counts.received, again.counts.recorded, again.counts.duplicates) == (2, 0, 2)
    assert first.new_identities == {delivery.notices[0]}
    [row] = database.fetch(
        "SELECT count(*) AS events, count(DISTINCT key) AS keys, count(DISTINCT body) AS n FROM kfm.inbox"
    )
    assert row == {"events": 105, "keys": 105, "n": 1}
    assert database.fetch("SELECT count(*) AS n FROM kfm.keys WHERE due_at IS NOT NULL") == [{"n": 105}]


def test_a_message_may_have_the_same_notice_twice(database: Database, counties: Datasets) -> None:
    delivery = read(counties, notification(counties), notification(counties), notification(counties, hour=1))
    assert len(delivery.notices) == 3
    counts = record(database, "q", [delivery], counties).counts
    assert (counts.recorded, counts.duplicates) == (2, 1)


def test_a_stream_advances_once_for_all_members(database: Database, counties: Datasets) -> None:
    record(database, "q", [read(counties, notification(counties))], counties)
    assert database.fetch("SELECT count(*) AS n FROM kfm.advances") == [{"n": 1}]


def test_a_removal_reaches_every_member(database: Database, counties: Datasets) -> None:
    place: dict[str, Any] = {
        "bucket": counties["usgs/streamflow"].input.bucket,
        "object_key": "usgs/streamflow/2025/12/04/00/state.parquet",
    }
    removal = s3_removal(version_id=None, event_time=START, **place)
    delivery = read_message(Message(body=json.dumps(removal), receipt="", message_id=""), counties)
    record(database, "q", [delivery], counties)
    rows = database.fetch("SELECT change, count(DISTINCT key) AS keys FROM kfm.inbox GROUP BY change")
    assert rows == [{"change": "deleted", "keys": 105}]


def test_a_member_that_is_declared_later_gets_the_notice_that_comes_again(
    database: Database, counties: Datasets, dataset: Dataset
) -> None:
    record(database, "q", [read(counties, notification(counties))], counties)
    document = dataset.model_dump(mode="json")
    document["key"]["split_by"] = {"column": "site_no", "members": [*MEMBERS, "new"]}
    more = Datasets({dataset.dataset: Dataset.model_validate(document)})
    counts = record(database, "q", [read(more, notification(counties))], more).counts
    assert (counts.recorded, counts.duplicates) == (1, 0)
    assert database.fetch("SELECT count(*) AS n FROM kfm.inbox") == [{"n": 106}]


def test_a_message_that_would_be_stored_too_often_is_refused(
    counties: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting = message(notification(counties))
    monkeypatch.setattr(parse, "MAX_CHARACTERS", len(fitting.body) * 105)
    assert read_message(fitting, counties).refusal is None
    monkeypatch.setattr(parse, "MAX_CHARACTERS", len(fitting.body) * 105 - 1)
    refused = read_message(fitting, counties)
    assert refused.refusal is not None
    assert isinstance(refused.refusal.error, ContractBroken)
    assert "is for too many keys; send a shorter one" in str(refused.refusal.error)
    assert refused.events == ()


def test_many_events_are_recorded_in_several_commits(
    database: Database, counties: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [message(notification(counties, hour=hour)) for hour in range(5)]
    deliveries = [read_message(one, counties) for one in messages]
    assert len(list(drain._commits(messages, deliveries))) == 1
    monkeypatch.setattr(drain, "EVENTS_PER_COMMIT", 250)
    commits = list(drain._commits(messages, deliveries))
    assert [len(part) for part, _ in commits] == [2, 2, 1]
    assert [one for part, _ in commits for one in part] == messages
    recorded = [record_safely(database, "q", *one, counties).counts.recorded for one in commits]
    assert recorded == [2, 2, 1]
