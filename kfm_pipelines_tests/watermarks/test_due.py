"""When a key is due: at once, with enough events, when its window closes, or after a wait, as its dataset declares."""

from dataclasses import replace
from datetime import datetime, timedelta

from kfm_pipelines.declarations import DueRule
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox.record import register_events
from kfm_pipelines.operations.replay.eligible import NewKey, create_keys
from kfm_pipelines.state import transactions
from kfm_pipelines.state.database import Database
from kfm_pipelines.watermarks.due import close_windows
from kfm_pipelines.watermarks.late import tick_watermarks
from kfm_pipelines_tests.fixtures.runs.keys import (
    begin,
    claimed,
    row_of_key,
    skip,
)
from kfm_pipelines_tests.fixtures.runs.streams import event_about, hours, record_events, streams

WAIT = timedelta(minutes=10)
THREE = streams(due=DueRule(events=3, wait=WAIT))
CLOSED = streams(due=DueRule(when="on_close", wait=WAIT))


def due_in(database: Database, event: IngestEvent) -> timedelta | None:
    """Returns how long until the key is due; None when it is not."""
    [row] = database.fetch("SELECT clock_timestamp() AS now")
    at: datetime | None = row_of_key(database, event.key)["due_at"]
    return None if at is None else max(at - row["now"], timedelta(0))


def waits(database: Database, event: IngestEvent) -> bool:
    left = due_in(database, event)
    return left is not None and WAIT - timedelta(minutes=1) < left <= WAIT


def is_due(database: Database, event: IngestEvent) -> bool:
    return due_in(database, event) == timedelta(0)


def part(number: int, **fields: str) -> IngestEvent:
    return event_about(3, 3 + number / 10, part=number, **fields)


def test_an_eager_key_is_due_with_its_first_event(database: Database) -> None:
    record_events(database, streams(), part(0))
    assert is_due(database, part(0))


def test_a_key_that_waits_for_several_events_is_due_with_the_last_of_them(database: Database) -> None:
    record_events(database, THREE, part(0))
    record_events(database, THREE, part(1), part(1))
    assert waits(database, part(0))
    record_events(database, THREE, part(2))
    assert is_due(database, part(0))


def test_a_key_waits_for_its_first_event_not_for_its_last(database: Database) -> None:
    record_events(database, THREE, part(0))
    first = row_of_key(database, part(0).key)["due_at"]
    record_events(database, THREE, part(1))
    assert row_of_key(database, part(0).key)["due_at"] == first


def test_an_urgent_event_does_not_wait_for_others(database: Database) -> None:
    record_events(database, THREE, part(0), part(1, priority="high"))
    assert is_due(database, part(0))


def test_events_that_arrive_during_a_run_wait_for_others_too(database: Database) -> None:
    record_events(database, THREE, part(0), part(1), part(2))
    claim = claimed(database, part(0).key)
    begin(database, claim)
    record_events(database, THREE, part(3))
    skip(database, claim, {})
    assert waits(database, part(0))

    claim = claimed(database, part(0).key)
    begin(database, claim)
    record_events(database, THREE, part(4))
    record_events(database, THREE, part(5), part(6))
    skip(database, claim, {})
    assert is_due(database, part(0))


def test_a_retry_is_not_held_up_by_events_that_wait(database: Database) -> None:
    record_events(database, THREE, part(0), part(1), part(2))
    transactions.hand_back(database, claimed(database, part(0).key), delay=30, reason="later")
    left = due_in(database, part(0))
    assert left
    assert left <= timedelta(seconds=30)


def test_a_key_that_waits_for_its_window_is_due_when_the_watermark_passes_its_end(database: Database) -> None:
    record_events(database, CLOSED, part(0), now=None)
    assert waits(database, part(0))
    record_events(database, CLOSED, event_about(5, 5))
    assert close_windows(database, CLOSED) == 0
    assert waits(database, part(0))
    record_events(database, CLOSED, event_about(6, 6))
    assert close_windows(database, CLOSED) == 1
    assert is_due(database, part(0))
    assert waits(database, event_about(6, 6))
    assert close_windows(database, CLOSED) == 0


def test_a_window_closes_when_its_streams_become_idle(database: Database) -> None:
    """Time alone is enough; no event has to arrive."""
    record_events(database, CLOSED, event_about(3, 3.9, "slow"), event_about(6, 6, "fast"), now=hours(6))
    ready = "SELECT ready_at IS NULL AS ready FROM kfm.inbox ORDER BY partition"
    tick_watermarks(database, CLOSED, now=hours(6.8))
    assert database.fetch(ready) == [{"ready": False}, {"ready": False}]
    tick_watermarks(database, CLOSED, now=hours(6.9))
    assert database.fetch(ready) == [{"ready": False}, {"ready": True}]


def test_an_event_for_a_closed_window_does_not_wait(database: Database) -> None:
    record_events(database, CLOSED, event_about(9, 9))
    record_events(database, CLOSED, part(0))
    assert is_due(database, part(0))


def test_a_registered_event_is_due_by_the_rule_once_its_notification_arrives(database: Database) -> None:
    create_keys(database, "usgs/streamflow", [NewKey(part(0).key, part(0).window_start, part(0).window_end)])
    assert register_events(database, CLOSED, [(part(0), "{}")], "ana") == 1
    tick_watermarks(database, CLOSED)
    assert due_in(database, part(0)) is None
    record_events(database, CLOSED, part(0))
    assert waits(database, part(0))
    record_events(database, CLOSED, event_about(6, 6))
    tick_watermarks(database, CLOSED)
    assert is_due(database, part(0))


def test_a_notification_is_not_lost_while_a_run_processes_the_registered_event(database: Database) -> None:
    create_keys(database, "usgs/streamflow", [NewKey(part(0).key, part(0).window_start, part(0).window_end)])
    register_events(database, streams(), [(part(0), "{}")], "ana")
    claim = claimed(database, part(0).key)
    begin(database, claim)
    record_events(database, streams(), part(0))
    transactions.hand_back(database, replace(claim, replay="r1234567"), delay=60, reason="stopped")
    assert is_due(database, part(0))


def test_a_known_event_that_moves_does_not_end_the_wait_of_its_key(database: Database) -> None:
    """The same object written again waits with the others as before."""
    record_events(database, THREE, part(0), event_about(3, 4, part=0, identity="e" * 64))
    record_events(database, THREE, event_about(3, 5, part=0))
    assert waits(database, part(0))
