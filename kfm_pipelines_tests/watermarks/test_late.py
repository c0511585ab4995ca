"""What a late event does under each rule, how lateness is re-evaluated, and how held events are released."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from kfm_pipelines.declarations import DueRule
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox.record import register_events
from kfm_pipelines.operations.replay.eligible import NewKey, create_keys
from kfm_pipelines.operations.status.tables import datasets_overview, key_history
from kfm_pipelines.state.audit import entries_of_key
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.watermarks.due import close_windows
from kfm_pipelines.watermarks.late import reevaluate_lateness, tick_watermarks
from kfm_pipelines.watermarks.late_lane import (
    LateFilter,
    count_held_by_dataset,
    count_late_events,
    find_late_events,
    release,
)
from kfm_pipelines_tests.fixtures.runs.keys import (
    begin,
    claimed,
    row_of_key,
    skip,
)
from kfm_pipelines_tests.fixtures.runs.streams import (
    DATASET,
    LATER,
    delete_all,
    event_about,
    hours,
    record_events,
    stored,
    streams,
)

IN_TIME = event_about(1, 1)
NEWEST = event_about(9, 9)
LATE = event_about(1, 10, part=1)  # by then the watermark is at 07:00


def inputs(database: Database, key: str) -> list[tuple[str, bool]]:
    with database.transaction() as connection:
        return [(event.identity, event.late) for event in events_of(connection, key)]


def one_row(database: Database, identity: str) -> Mapping[str, Any] | None:
    rows = database.fetch("SELECT * FROM kfm.late WHERE identity = %(i)s", {"i": identity})
    return rows[0] if rows else None


def settled(database: Database, event: IngestEvent) -> None:
    """Processes the key of this event completely."""
    claim = claimed(database, event.key)
    begin(database, claim)
    skip(database, claim, {})


def is_due(database: Database, event: IngestEvent) -> bool:
    return row_of_key(database, event.key)["due_at"] is not None


def dependent_key(database: Database, event: IngestEvent) -> str:
    """Creates the key of the same window in another version, which takes its inputs from the event's key."""
    target = event.key.replace("v1-0-0", "v9-0-0")
    database.execute(
        """
        INSERT INTO kfm.keys (key, dataset, window_start, window_end, inputs_from)
        SELECT %(target)s, dataset, window_start, window_end, key FROM kfm.keys WHERE key = %(source)s
        """,
        {"target": target, "source": event.key},
    )
    return target


def known_keys(database: Database, *events: IngestEvent) -> None:
    create_keys(database, DATASET, [NewKey(event.key, event.window_start, event.window_end) for event in events])


def test_under_rule_patch_a_late_event_is_applied_at_once(database: Database) -> None:
    record_events(database, streams("patch"), IN_TIME, NEWEST)
    settled(database, IN_TIME)
    record_events(database, streams("patch"), LATE)
    row = one_row(database, LATE.identity)
    assert row
    assert (row["rule"], row["state"], row["is_late"]) == ("patch", "applied", True)
    assert [one.watermark for one in find_late_events(database, LateFilter(state=None))] == [hours(7)]
    assert is_due(database, LATE)
    assert inputs(database, LATE.key) == sorted([(IN_TIME.identity, False), (LATE.identity, True)])


@pytest.mark.parametrize("rule", ["replay", "quarantine"])
def test_a_held_event_is_no_input_until_it_is_released(database: Database, rule: Any) -> None:
    record_events(database, streams(rule), IN_TIME, NEWEST)
    settled(database, IN_TIME)
    record_events(database, streams(rule), LATE)
    assert not is_due(database, LATE)
    assert inputs(database, LATE.key) == [(IN_TIME.identity, False)]
    assert count_held_by_dataset(database) == {DATASET: 1}
    assert datasets_overview(database)[DATASET]["late_held"] == 1

    # Neither time, nor another event of the key, nor its run releases it.
    tick_watermarks(database, streams(rule), now=LATER)
    record_events(database, streams(rule), event_about(1, 1.5, part=2))
    settled(database, LATE)
    assert not is_due(database, LATE)
    assert [identity for identity, _ in inputs(database, LATE.key)] != [LATE.identity]
    [state] = database.fetch("SELECT state FROM kfm.inbox WHERE identity = %(i)s", {"i": LATE.identity})
    assert state == {"state": "received"}

    chosen = find_late_events(database, LateFilter())
    assert release(database, streams(rule), chosen, actor="ada", reason="asked for") == [LATE.identity]
    assert release(database, streams(rule), chosen, actor="bob", reason="again") == []
    assert is_due(database, LATE)
    assert (LATE.identity, True) in inputs(database, LATE.key)
    row = one_row(database, LATE.identity)
    assert row
    assert (row["state"], row["changed_by"], row["reason"]) == ("released", "ada", "asked for")
    [entry] = entries_of_key(database, LATE.key)
    assert (entry["action"], entry["actor"], entry["policy"]) == ("late-released", "ada", "not-sensitive")
    assert entry["detail"] == {"reason": "asked for", "rules": [rule], "events": [LATE.identity]}
    settled(database, LATE)
    assert not is_due(database, LATE)
    history = key_history(database, LATE.key)
    assert history
    assert {event["late"] for event in history["events"]} == {None, "released"}


def test_an_event_delivered_out_of_order_makes_others_late_and_their_keys_due(database: Database) -> None:
    """The key is published again without the event."""
    datasets = streams("quarantine")
    record_events(database, datasets, IN_TIME, LATE)
    settled(database, LATE)
    record_events(database, datasets, NEWEST)
    assert one_row(database, LATE.identity) is None
    assert database.fetch("SELECT dataset, since, until FROM kfm.late_again") == [
        {"dataset": DATASET, "since": hours(9), "until": None}
    ]

    assert reevaluate_lateness(database, datasets) == 1

    assert is_due(database, LATE)
    assert inputs(database, LATE.key) == [(IN_TIME.identity, False)]
    assert database.fetch("SELECT * FROM kfm.late_again") == []
    assert reevaluate_lateness(database, datasets) == 0


def test_an_event_found_to_be_older_is_no_longer_late(database: Database) -> None:
    datasets = streams("replay")
    record_events(database, datasets, IN_TIME, NEWEST, LATE)
    settled(database, IN_TIME)
    assert count_held_by_dataset(database) == {DATASET: 1}
    record_events(database, datasets, event_about(1, 2, part=1))
    assert count_held_by_dataset(database) == {}
    assert is_due(database, LATE)
    assert inputs(database, LATE.key) == sorted([(IN_TIME.identity, False), (LATE.identity, False)])


def test_an_event_sent_again_later_does_not_become_late(database: Database) -> None:
    datasets = streams("replay")
    record_events(database, datasets, event_about(1, 2, part=1), NEWEST)
    record_events(database, datasets, LATE)
    assert count_held_by_dataset(database) == {}
    [row] = database.fetch("SELECT made_at, event_time FROM kfm.inbox WHERE identity = %(i)s", {"i": LATE.identity})
    assert row == {"made_at": hours(2), "event_time": hours(10)}


def test_late_events_are_filtered(database: Database) -> None:
    others = [event_about(2, 10, part=part) for part in range(3)]
    record_events(database, streams("replay"), NEWEST, LATE, *others)

    def found(**chosen: Any) -> int:
        assert count_late_events(database, LateFilter(**chosen)) == len(
            find_late_events(database, LateFilter(**chosen))
        )
        return count_late_events(database, LateFilter(**chosen))

    assert found() == found(rule="replay") == found(dataset=DATASET) == found(state=None) == 4
    assert found(rule="quarantine") == found(state="released") == found(dataset="heritage/sites") == 0
    assert found(key=others[0].key) == 3
    assert found(identities=(LATE.identity[:10], others[1].identity)) == 2
    assert len(find_late_events(database, LateFilter(), limit=2)) == 2


def test_a_dependent_key_does_not_settle_the_events_it_takes(database: Database) -> None:
    """The events of a window go into both versions, but only the first one settles them."""
    record_events(database, streams("quarantine"), IN_TIME, NEWEST, LATE)
    target = dependent_key(database, IN_TIME)
    assert inputs(database, target) == [(IN_TIME.identity, False)]
    release(database, streams("quarantine"), find_late_events(database, LateFilter()), actor="ada", reason="ok")
    assert row_of_key(database, target)["due_at"] is not None
    assert len(inputs(database, target)) == 2
    claim = claimed(database, target)
    begin(database, claim)
    states = database.fetch("SELECT DISTINCT state FROM kfm.inbox")
    assert states == [{"state": "received"}]
    skip(database, claim, {})
    assert is_due(database, IN_TIME)
    assert row_of_key(database, target)["due_at"] is None


@pytest.mark.parametrize("change", ["deleted", "purged"])
def test_a_late_deletion_is_not_held(database: Database, change: str) -> None:
    """Otherwise the data would stay published after its source deleted it."""
    record_events(database, streams("quarantine"), IN_TIME, NEWEST)
    settled(database, IN_TIME)
    gone = event_about(1, 10, change=change)
    record_events(database, streams("quarantine"), gone)
    assert count_held_by_dataset(database) == {}
    assert is_due(database, gone)
    assert (gone.identity, True) in inputs(database, gone.key)


def test_reevaluation_skips_locked_keys(database: Database) -> None:
    datasets = streams("quarantine", due=DueRule(when="on_close", wait=timedelta(days=9)))
    other = event_about(2, 10, part=1)
    record_events(database, datasets, LATE, other)
    record_events(database, datasets, NEWEST)
    with database.transaction() as connection:
        connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": LATE.key})
        assert reevaluate_lateness(database, datasets) == 1
        assert close_windows(database, datasets) == 0
    assert count_held_by_dataset(database) == {DATASET: 1}
    assert reevaluate_lateness(database, datasets) == 1
    assert count_held_by_dataset(database) == {DATASET: 2}
    assert database.fetch("SELECT * FROM kfm.late_again") == []


@pytest.mark.parametrize("lagging_first", [True, False])
def test_a_release_survives_while_its_event_is_temporarily_in_time(database: Database, lagging_first: bool) -> None:
    datasets = streams("quarantine")
    record_events(database, datasets, IN_TIME, NEWEST, LATE)
    release(database, datasets, find_late_events(database, LateFilter()), actor="ada", reason="asked for")
    settled(database, LATE)
    # A lagging stream makes it in time, and when that stream catches up it is late again.
    lagging, caught_up = event_about(1, 8.9, site="b"), event_about(8, 9.5, site="b")
    for one in (lagging, caught_up) if lagging_first else (caught_up, lagging):
        record_events(database, datasets, one)
        reevaluate_lateness(database, datasets)
        if one is lagging and lagging_first:
            assert find_late_events(database, LateFilter(state=None)) == []
            assert (LATE.identity, False) in inputs(database, LATE.key)
    row = one_row(database, LATE.identity)
    assert row
    assert (row["state"], row["changed_by"], row["reason"], row["is_late"]) == ("released", "ada", "asked for", True)
    assert (LATE.identity, True) in inputs(database, LATE.key)
    assert len(entries_of_key(database, LATE.key)) == 1


def test_a_registered_event_that_becomes_late_is_applied_without_making_its_key_due(database: Database) -> None:
    datasets = streams("quarantine")
    known_keys(database, LATE)
    assert register_events(database, datasets, [(LATE, "{}")], "ana") == 1
    record_events(database, datasets, NEWEST)
    tick_watermarks(database, datasets, now=LATER)
    assert inputs(database, LATE.key) == [(LATE.identity, True)]
    assert not is_due(database, LATE)
    waiting = database.fetch("SELECT FROM kfm.inbox WHERE key LIKE '%T01Z%' AND ready_at = 'infinity'")
    assert len(waiting) == 1
    [one] = find_late_events(database, LateFilter(state=None))
    assert (one.state, one.changed_by) == ("released", "ana")
    [entry] = entries_of_key(database, LATE.key)
    assert (entry["actor"], entry["detail"]["events"]) == ("ana", [LATE.identity])

    settled(database, LATE)
    record_events(database, datasets, event_about(1, 8.9, site="b"))
    reevaluate_lateness(database, datasets)
    assert is_due(database, LATE)  # it was published as late and no longer is


def test_a_listing_and_a_notification_give_the_same_state_in_either_order(database: Database) -> None:
    datasets = streams()
    notified, listed = event_about(1, 10), event_about(1, 9.9)
    seen = []
    for listing_first in (True, False):
        delete_all(database)
        known_keys(database, notified)
        if listing_first:
            register_events(database, datasets, [(listed, "{}")], "ana")
        record_events(database, datasets, notified)
        if not listing_first:
            register_events(database, datasets, [(listed, "{}")], "ana")
        [row] = database.fetch("SELECT made_at, event_time, ready_at, queue FROM kfm.inbox")
        seen.append((row, stored(database), is_due(database, notified)))
    assert seen[0] == seen[1]
    assert seen[0][0]["made_at"] == hours(9.9)
    assert len(seen[0][1].advances) == 1
    assert seen[0][2]


def test_events_recorded_before_watermarks_existed_are_never_late(database: Database) -> None:
    datasets = streams("quarantine")
    record_events(database, datasets, LATE)
    database.execute("UPDATE kfm.inbox SET made_at = NULL, data_time = NULL")
    for table in ("advances", "watermark_steps", "checkpoints"):
        database.execute(f"DELETE FROM kfm.{table}")
    record_events(database, datasets, NEWEST)
    record_events(database, datasets, event_about(1, 10.5, part=1))
    reevaluate_lateness(database, datasets)
    assert find_late_events(database, LateFilter(state=None)) == []


def test_reevaluation_makes_dependent_keys_due(database: Database) -> None:
    datasets = streams("quarantine")
    record_events(database, datasets, IN_TIME, LATE)
    settled(database, LATE)
    target = dependent_key(database, LATE)
    record_events(database, datasets, NEWEST)
    with database.transaction() as connection:
        connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": target})
        assert reevaluate_lateness(database, datasets) == 0
    assert reevaluate_lateness(database, datasets) == 1
    assert row_of_key(database, target)["due_at"] is not None
