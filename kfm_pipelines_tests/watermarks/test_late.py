"""The late lane: what a late event does under each rule, what is judged again, and who lets go of what is held."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from kfm_pipelines.declarations import DueRule
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox.record import register_events
from kfm_pipelines.operations.replay.eligible import NewKey, create_keys
from kfm_pipelines.operations.status.tables import datasets_overview, key_history
from kfm_pipelines.state import transactions
from kfm_pipelines.state.audit import entries_of_key
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.watermarks.due import close_windows
from kfm_pipelines.watermarks.late import reevaluate_lateness
from kfm_pipelines.watermarks.late_lane import (
    LateFilter,
    count_held_by_dataset,
    count_late_events,
    find_late_events,
    release,
)
from kfm_pipelines.watermarks.tick import format_watermarks, tick_watermarks
from kfm_pipelines_tests.fixtures.runs.keys import claimed, row_of_key
from kfm_pipelines_tests.fixtures.runs.streams import DATASET, LATER, forget_all, hear, hours, known, streams, told

IN_TIME = told(1, 1)
NEWEST = told(9, 9)
LATE = told(1, 10, part=1)  # by then the watermark is at 07:00


def inputs(database: Database, key: str) -> list[tuple[str, bool]]:
    with database.transaction() as connection:
        return [(event.identity, event.late) for event in events_of(connection, key)]


def one_row(database: Database, identity: str) -> Mapping[str, Any] | None:
    rows = database.fetch("SELECT * FROM kfm.late WHERE identity = %(i)s", {"i": identity})
    return rows[0] if rows else None


def settled(database: Database, event: IngestEvent) -> None:
    """Somebody has done all that the key of this event asked for."""
    claim = claimed(database, event.key)
    transactions.begin(database, claim, lambda _: {})
    transactions.skip(database, claim, {})


def is_due(database: Database, event: IngestEvent) -> bool:
    return row_of_key(database, event.key)["due_at"] is not None


def taking(database: Database, event: IngestEvent) -> str:
    """The key of the same window in another version, which takes its inputs from the event's."""
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


def test_a_late_event_that_patches_counts_at_once_and_is_marked(database: Database) -> None:
    hear(database, streams("patch"), IN_TIME, NEWEST)
    settled(database, IN_TIME)
    hear(database, streams("patch"), LATE)
    row = one_row(database, LATE.identity)
    assert row
    assert (row["rule"], row["state"], row["is_late"]) == ("patch", "applied", True)
    assert [one.watermark for one in find_late_events(database, LateFilter(state=None))] == [hours(7)]
    assert is_due(database, LATE)
    assert inputs(database, LATE.key) == sorted([(IN_TIME.identity, False), (LATE.identity, True)])


@pytest.mark.parametrize("rule", ["replay", "quarantine"])
def test_a_late_event_that_is_held_is_no_input_until_it_is_released(database: Database, rule: Any) -> None:
    hear(database, streams(rule), IN_TIME, NEWEST)
    settled(database, IN_TIME)
    hear(database, streams(rule), LATE)
    assert not is_due(database, LATE)
    assert inputs(database, LATE.key) == [(IN_TIME.identity, False)]
    assert count_held_by_dataset(database) == {DATASET: 1}
    assert datasets_overview(database)[DATASET]["late_held"] == 1
    assert any("1 late held" in said for said in format_watermarks(database))

    # Neither a clock, nor another event of the key, nor its run lets it in.
    tick_watermarks(database, streams(rule), now=LATER)
    hear(database, streams(rule), told(1, 1.5, part=2))
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
    """What was published in good faith is published again without it."""
    datasets = streams("quarantine")
    hear(database, datasets, IN_TIME, LATE)
    settled(database, LATE)
    hear(database, datasets, NEWEST)
    assert one_row(database, LATE.identity) is None
    assert database.fetch("SELECT dataset, since, until FROM kfm.late_again") == [
        {"dataset": DATASET, "since": hours(9), "until": None}
    ]

    assert reevaluate_lateness(database, datasets) == 1

    assert is_due(database, LATE)
    assert inputs(database, LATE.key) == [(IN_TIME.identity, False)]
    assert database.fetch("SELECT * FROM kfm.late_again") == []
    assert reevaluate_lateness(database, datasets) == 0


def test_an_event_that_was_made_earlier_than_was_known_is_late_no_more(database: Database) -> None:
    datasets = streams("replay")
    hear(database, datasets, IN_TIME, NEWEST, LATE)
    settled(database, IN_TIME)
    assert count_held_by_dataset(database) == {DATASET: 1}
    hear(database, datasets, told(1, 2, part=1))
    assert count_held_by_dataset(database) == {}
    assert is_due(database, LATE)
    assert inputs(database, LATE.key) == sorted([(IN_TIME.identity, False), (LATE.identity, False)])


def test_told_again_later_it_is_as_late_as_it_was(database: Database) -> None:
    datasets = streams("replay")
    hear(database, datasets, told(1, 2, part=1), NEWEST)
    hear(database, datasets, LATE)
    assert count_held_by_dataset(database) == {}
    [row] = database.fetch("SELECT made_at, event_time FROM kfm.inbox WHERE identity = %(i)s", {"i": LATE.identity})
    assert row == {"made_at": hours(2), "event_time": hours(10)}


def test_late_events_are_chosen_by_what_is_asked_for(database: Database) -> None:
    others = [told(2, 10, part=part) for part in range(3)]
    hear(database, streams("replay"), NEWEST, LATE, *others)

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


def test_inputs_taken_from_another_key_do_not_change_there(database: Database) -> None:
    """The same window in another version: its events go into both, and are the first one's to settle."""
    hear(database, streams("quarantine"), IN_TIME, NEWEST, LATE)
    target = taking(database, IN_TIME)
    assert inputs(database, target) == [(IN_TIME.identity, False)]
    release(database, streams("quarantine"), find_late_events(database, LateFilter()), actor="ada", reason="ok")
    assert row_of_key(database, target)["due_at"] is not None
    assert len(inputs(database, target)) == 2
    claim = claimed(database, target)
    transactions.begin(database, claim, lambda events: {"n": len(events)})
    states = database.fetch("SELECT DISTINCT state FROM kfm.inbox")
    assert states == [{"state": "received"}]
    transactions.skip(database, claim, {})
    assert is_due(database, IN_TIME)
    assert row_of_key(database, target)["due_at"] is None


@pytest.mark.parametrize("change", ["deleted", "purged"])
def test_what_is_taken_away_late_is_not_held(database: Database, change: str) -> None:
    """Or it would stay published against the will of whoever took it away."""
    hear(database, streams("quarantine"), IN_TIME, NEWEST)
    settled(database, IN_TIME)
    gone = told(1, 10, change=change)
    hear(database, streams("quarantine"), gone)
    assert count_held_by_dataset(database) == {}
    assert is_due(database, gone)
    assert (gone.identity, True) in inputs(database, gone.key)


def test_a_review_does_not_wait_for_a_key_that_is_being_published(database: Database) -> None:
    datasets = streams("quarantine", due=DueRule(when="on_close", wait=timedelta(days=9)))
    other = told(2, 10, part=1)
    hear(database, datasets, LATE, other)
    hear(database, datasets, NEWEST)
    with database.transaction() as connection:
        connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": LATE.key})
        assert reevaluate_lateness(database, datasets) == 1
        assert close_windows(database, datasets) == 0
    assert count_held_by_dataset(database) == {DATASET: 1}
    assert reevaluate_lateness(database, datasets) == 1
    assert count_held_by_dataset(database) == {DATASET: 2}
    assert database.fetch("SELECT * FROM kfm.late_again") == []


@pytest.mark.parametrize("lagging_first", [True, False])
def test_a_release_is_not_forgotten_when_its_event_is_in_time_for_a_while(
    database: Database, lagging_first: bool
) -> None:
    datasets = streams("quarantine")
    hear(database, datasets, IN_TIME, NEWEST, LATE)
    release(database, datasets, find_late_events(database, LateFilter()), actor="ada", reason="asked for")
    settled(database, LATE)
    # A stream that lags makes it be in time, and its catching up makes it late again.
    lagging, caught_up = told(1, 8.9, site="b"), told(8, 9.5, site="b")
    for one in (lagging, caught_up) if lagging_first else (caught_up, lagging):
        hear(database, datasets, one)
        reevaluate_lateness(database, datasets)
        if one is lagging and lagging_first:
            assert find_late_events(database, LateFilter(state=None)) == []
            assert (LATE.identity, False) in inputs(database, LATE.key)
    row = one_row(database, LATE.identity)
    assert row
    assert (row["state"], row["changed_by"], row["reason"], row["is_late"]) == ("released", "ada", "asked for", True)
    assert (LATE.identity, True) in inputs(database, LATE.key)
    assert len(entries_of_key(database, LATE.key)) == 1


def test_what_was_registered_counts_also_if_it_turns_out_late_and_is_due_for_nobody(database: Database) -> None:
    datasets = streams("quarantine")
    known_keys(database, LATE)
    assert register_events(database, datasets, [(LATE, "{}")], "ana") == 1
    hear(database, datasets, NEWEST)
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
    hear(database, datasets, told(1, 8.9, site="b"))
    reevaluate_lateness(database, datasets)
    assert is_due(database, LATE)  # what is published says that it is late, and it is not any more


def test_a_listing_and_a_notification_say_the_same_whichever_comes_first(database: Database) -> None:
    datasets = streams()
    notified, listed = told(1, 10), told(1, 9.9)
    seen = []
    for listing_first in (True, False):
        forget_all(database)
        known_keys(database, notified)
        if listing_first:
            register_events(database, datasets, [(listed, "{}")], "ana")
        hear(database, datasets, notified)
        if not listing_first:
            register_events(database, datasets, [(listed, "{}")], "ana")
        [row] = database.fetch("SELECT made_at, event_time, ready_at, queue FROM kfm.inbox")
        seen.append((row, known(database), is_due(database, notified)))
    assert seen[0] == seen[1]
    assert seen[0][0]["made_at"] == hours(9.9)
    assert len(seen[0][1].advances) == 1
    assert seen[0][2]


def test_what_came_before_watermarks_is_never_late(database: Database) -> None:
    datasets = streams("quarantine")
    hear(database, datasets, LATE)
    database.execute("UPDATE kfm.inbox SET made_at = NULL, data_time = NULL")
    for table in ("advances", "watermark_steps", "checkpoints"):
        database.execute(f"DELETE FROM kfm.{table}")
    hear(database, datasets, NEWEST)
    hear(database, datasets, told(1, 10.5, part=1))
    reevaluate_lateness(database, datasets)
    assert find_late_events(database, LateFilter(state=None)) == []


def test_a_review_makes_those_due_that_take_their_inputs_from_a_key(database: Database) -> None:
    datasets = streams("quarantine")
    hear(database, datasets, IN_TIME, LATE)
    settled(database, LATE)
    target = taking(database, LATE)
    hear(database, datasets, NEWEST)
    with database.transaction() as connection:
        connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": target})
        assert reevaluate_lateness(database, datasets) == 0
    assert reevaluate_lateness(database, datasets) == 1
    assert row_of_key(database, target)["due_at"] is not None
