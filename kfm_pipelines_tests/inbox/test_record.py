"""The inbox: every event once by identity, recorded before its message is deleted, in states it cannot leave (I3)."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from kfm_pipelines.aws.queue import Message
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.inbox.parse import read_message
from kfm_pipelines.inbox.record import BatchCounts, record
from kfm_pipelines.producer.messages import auto_update
from kfm_pipelines.state import transactions
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.inbox import Delivery, events_of
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.runs.keys import (
    QUEUE,
    START,
    begin,
    claimed,
    deliver,
    event_of_hour,
    known_key,
    row_of_key,
    skip,
)

LEGAL = {
    ("received", "started"),
    ("failed", "started"),
    ("started", "succeeded"),
    ("started", "failed"),
    ("started", "received"),
}
WAYS = {
    "received": (),
    "started": ("started",),
    "succeeded": ("started", "succeeded"),
    "failed": ("started", "failed"),
}
ILLEGAL = [(before, after) for before, after in product(WAYS, WAYS) if before != after and (before, after) not in LEGAL]


def set_state(database: Database, state: str) -> None:
    database.execute("UPDATE kfm.inbox SET state = %(state)s", {"state": state})


def states(database: Database) -> list[str]:
    return [row["state"] for row in database.fetch("SELECT state FROM kfm.inbox ORDER BY identity")]


def message(**fields: Any) -> str:
    facts: dict[str, Any] = {
        "dataset": "usgs/streamflow",
        "asset_uri": "s3://kfm-ingest/usgs/streamflow/one.parquet",
        "content_etag": '"abc"',
        "granule_start": START,
        "granule_end": None,
        "event_time": START,
    }
    return json.dumps(auto_update(**facts) | fields)


def test_an_event_is_recorded_whole_and_makes_its_key_due(database: Database) -> None:
    one = event_of_hour(version_id="v1", sequencer="0AB")

    assert deliver(database, one) == BatchCounts(received=1, recorded=1)

    with database.transaction() as connection:
        assert events_of(connection, one.key) == [one]
    assert states(database) == ["received"]
    assert row_of_key(database, one.key)["due_at"] is not None


def test_an_identity_is_recorded_once_and_its_duplicates_are_counted(database: Database) -> None:
    one = event_of_hour()

    assert deliver(database, one, one) == BatchCounts(received=2, recorded=1, duplicates=1)
    assert deliver(database, one) == BatchCounts(received=1, duplicates=1)

    assert database.fetch("SELECT received, recorded, duplicates, refused FROM kfm.queue_totals") == [
        {"received": 3, "recorded": 1, "duplicates": 2, "refused": 0}
    ]


def test_a_duplicate_makes_nothing_due(database: Database) -> None:
    key = known_key(database)
    claimed(database, key)

    deliver(database, event_of_hour())

    assert row_of_key(database, key)["due_at"] is None


def test_a_new_event_makes_a_key_due_again_also_while_somebody_works_on_it(database: Database) -> None:
    key = known_key(database)
    claim = claimed(database, key)
    begin(database, claim)

    deliver(database, event_of_hour(identity="b" * 64))
    skip(database, claim, {})

    assert row_of_key(database, key)["due_at"] is not None
    assert states(database) == ["succeeded", "received"]


def test_a_new_event_does_not_put_off_a_key_that_is_due(database: Database) -> None:
    key = known_key(database)
    due = row_of_key(database, key)["due_at"]
    deliver(database, event_of_hour(identity="b" * 64))
    assert row_of_key(database, key)["due_at"] == due


def test_a_new_event_brings_forward_a_key_that_waits_for_another_attempt(database: Database) -> None:
    key = known_key(database)
    transactions.hand_back(database, claimed(database, key), delay=300, reason="later")

    deliver(database, event_of_hour(identity="b" * 64))

    [row] = database.fetch("SELECT due_at <= clock_timestamp() AS due FROM kfm.keys")
    assert row["due"]


def test_an_urgent_event_raises_its_key_and_a_usual_one_does_not_lower_it(database: Database) -> None:
    key = known_key(database)
    deliver(database, event_of_hour(identity="b" * 64, priority="high"))
    assert row_of_key(database, key)["priority"] == 2
    deliver(database, event_of_hour(identity="c" * 64, priority="low"))
    assert row_of_key(database, key)["priority"] == 2


@pytest.mark.parametrize(("word", "rank"), [("low", 0), ("normal", 1), ("high", 2)])
def test_a_new_key_is_as_urgent_as_its_first_event(database: Database, word: str, rank: int) -> None:
    one = event_of_hour(priority=word)
    deliver(database, one)
    assert row_of_key(database, one.key)["priority"] == rank


def test_a_message_with_several_records_makes_several_keys_due(database: Database) -> None:
    events = tuple(event_of_hour(hour) for hour in range(3))

    assert record(database, QUEUE, [Delivery("{}", events)], declared()).counts == BatchCounts(received=1, recorded=3)

    assert len(database.fetch("SELECT FROM kfm.keys WHERE due_at IS NOT NULL")) == 3


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_an_event_cannot_leave_the_order_of_its_states(database: Database, before: str, after: str) -> None:
    known_key(database)
    for state in WAYS[before]:
        set_state(database, state)

    with pytest.raises(TransitionIllegal, match=f"may not go from {before} to {after}$"):
        set_state(database, after)

    assert states(database) == [before]


@pytest.mark.parametrize(("before", "after"), sorted(LEGAL))
def test_the_moves_of_the_design_are_taken(database: Database, before: str, after: str) -> None:
    known_key(database)
    for state in (*WAYS[before], after):
        set_state(database, state)
    assert states(database) == [after]


def test_a_refused_message_is_kept_once_with_its_reason(database: Database) -> None:
    refused = read_message(Message("this is no JSON"), declared())

    assert record(database, QUEUE, [refused, refused], declared()).counts == BatchCounts(received=2, refused=2)
    assert record(database, QUEUE, [refused], declared()).counts == BatchCounts(received=1, refused=1)

    [letter] = database.fetch("SELECT * FROM kfm.dead_letters")
    assert (letter["failure_stage"], letter["triage"], letter["error"]) == ("receive", "schema", "BodyUnreadable")
    assert letter["reason"].startswith("message is not JSON")
    assert (letter["body"], letter["queue"]) == ("this is no JSON", QUEUE)


@pytest.mark.parametrize(
    "body",
    [
        "\x00",
        message() + "\x00",
        "\ud800",
        message(note="\ud800"),
        message(asset_uri="s3://kfm-ingest/usgs/streamflow/\x00.parquet"),
        message(dataset="\x00"),
        message(content_etag="\x00"),
    ],
)
def test_what_postgres_cannot_store_is_refused_and_does_not_stop_the_batch(database: Database, body: str) -> None:
    bad, good = read_message(Message(body), declared()), read_message(Message(message()), declared())

    assert isinstance(bad.refusal.error if bad.refusal else None, MessageRefused)
    assert record(database, QUEUE, [bad, good], declared()).counts == BatchCounts(received=2, recorded=1, refused=1)


def test_a_nul_in_a_field_nobody_reads_does_no_harm(database: Database) -> None:
    read = read_message(Message(message(note="\x00")), declared())
    assert record(database, QUEUE, [read], declared()).counts == BatchCounts(received=1, recorded=1)


def test_consumers_with_the_same_messages_in_any_order_record_each_once(database: Database) -> None:
    events = [event_of_hour(hour, identity=f"{hour:02x}" + f"{part:062x}") for hour in range(20) for part in range(5)]

    def consume(seed: int) -> BatchCounts:
        shuffled = random.Random(seed).sample(events, len(events))
        return sum((deliver(database, *shuffled[start : start + 25]) for start in range(0, 100, 25)), BatchCounts())

    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(consume, range(4)), BatchCounts())

    assert total == BatchCounts(received=400, recorded=100, duplicates=300)
    assert len(states(database)) == 100
