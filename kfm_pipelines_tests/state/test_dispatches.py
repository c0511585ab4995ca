"""Dispatches: which keys are due, in which order, and which run was asked to take them."""

from datetime import UTC, datetime

from kfm_pipelines.state import transactions
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.dispatches import (
    close_dispatch,
    due_keys,
    is_silent,
    open_dispatches,
    put_off_untouched,
    record_dispatch,
    seconds_until_due,
    void_claims,
)
from kfm_pipelines.state.wal import Step
from kfm_pipelines_tests.state.given import claimed, deliver, event_of_hour, expire_lease, known_key, row_of_key

DATASET = "usgs/streamflow"


def due(database: Database, *, limit: int = 100, also_dispatched: bool = False) -> list[str]:
    return [one.key for one in due_keys(database, DATASET, limit, also_dispatched=also_dispatched)]


def seconds_until(database: Database, key: str) -> float:
    return float((row_of_key(database, key)["due_at"] - datetime.now(UTC)).total_seconds())


def make_due(database: Database) -> None:
    database.execute("UPDATE kfm.keys SET due_at = clock_timestamp() WHERE owner IS NULL")


def test_urgent_keys_come_first_then_the_oldest_windows(database: Database) -> None:
    words = {3: "low", 4: "normal", 5: "high", 1: "normal", 6: "high", 0: "low"}
    events = {hour: event_of_hour(hour, priority=word) for hour, word in words.items()}
    deliver(database, *events.values())

    assert due(database) == [events[hour].key for hour in (5, 6, 1, 4, 0, 3)]
    assert due(database, limit=2) == [events[hour].key for hour in (5, 6)]
    assert due_keys(database, "another/dataset", 100) == []


def test_a_dispatched_key_is_not_due_for_another_run(database: Database) -> None:
    keys = [known_key(database, hour) for hour in range(3)]

    assert record_dispatch(database, "run-key", DATASET, keys[:2])

    assert due(database) == keys[2:]
    assert due(database, also_dispatched=True) == keys
    [one] = open_dispatches(database)
    assert (one.run_key, one.dataset, one.keys) == ("run-key", DATASET, tuple(keys[:2]))
    assert 0 <= one.age_seconds < 30


def test_who_is_late_with_one_key_gets_none(database: Database) -> None:
    keys = [known_key(database, hour) for hour in range(3)]
    assert record_dispatch(database, "winner", DATASET, keys[:2])

    assert not record_dispatch(database, "loser", DATASET, keys[1:])

    assert [one.run_key for one in open_dispatches(database)] == ["winner"]
    assert due(database) == keys[2:]
    assert row_of_key(database, keys[2])["dispatches"] == 0


def test_a_request_made_before_cannot_be_made_again(database: Database) -> None:
    key = known_key(database)
    assert record_dispatch(database, "run-key", DATASET, [key])
    close_dispatch(database, "run-key")

    # Somebody who saw the key due before it was dispatched: Dagster would drop this request without a word.
    assert not record_dispatch(database, "run-key", DATASET, [key])

    assert due(database) == [key]


def test_each_dispatch_of_a_key_has_a_run_key_of_its_own(database: Database) -> None:
    key = known_key(database)
    seen = []
    for _ in range(3):
        [one] = due_keys(database, DATASET, 10)
        seen.append(one.run_key)
        assert record_dispatch(database, one.run_key, DATASET, [key])
        close_dispatch(database, one.run_key)
    assert seen == [f"{key}#0#1", f"{key}#0#2", f"{key}#0#3"]


def test_a_closed_dispatch_frees_the_keys_it_did_not_settle(database: Database) -> None:
    keys = [known_key(database, hour) for hour in range(2)]
    record_dispatch(database, "run-key", DATASET, keys)
    settled = claimed(database, keys[0])
    transactions.begin(database, settled, lambda _: {})
    transactions.skip(database, settled, {})

    close_dispatch(database, "run-key")

    assert open_dispatches(database) == []
    assert due(database) == keys[1:]


def test_what_an_ended_run_held_is_due_again_and_others_keep_theirs(database: Database) -> None:
    held, others = (claimed(database, known_key(database, hour), owner) for hour, owner in ((1, "ended"), (2, "alive")))

    assert void_claims(database, "ended", lambda _: 40) == 1

    assert due(database) == []
    assert 30 < (seconds_until_due(database) or 0) <= 40
    make_due(database)
    assert due(database) == [held.key]
    assert row_of_key(database, others.key)["owner"] == "alive"
    assert row_of_key(database, held.key)["epoch"] == held.epoch


def test_the_policy_says_for_each_key_when_it_is_due_after_its_run_died(database: Database) -> None:
    keys = [claimed(database, known_key(database, hour), "ended").key for hour in range(3)]
    for attempts, key in enumerate(keys, start=1):
        database.execute(
            "UPDATE kfm.keys SET attempts = %(attempts)s WHERE key = %(key)s", {"key": key, "attempts": attempts}
        )

    void_claims(database, "ended", lambda attempts: 1000.0 * attempts)

    assert [round(seconds_until(database, key), -2) for key in keys] == [1000, 2000, 3000]
    assert [row_of_key(database, key)["attempts"] for key in keys] == [1, 2, 3]


def test_a_run_that_failed_without_a_word_counts_as_an_attempt_of_its_keys(database: Database) -> None:
    untouched, touched, held = (known_key(database, hour) for hour in (1, 2, 3))
    claim = claimed(database, touched, "failed")
    transactions.begin(database, claim, lambda _: {})
    transactions.hand_back(database, claim, delay=0, reason="later", count_attempt=False)
    claimed(database, held, "alive")

    assert put_off_untouched(database, "failed", [untouched, touched, held], lambda attempts: 1000.0 * attempts) == 1

    assert round(seconds_until(database, untouched), -2) == 1000
    assert due(database) == [touched]
    assert [row_of_key(database, key)["attempts"] for key in (untouched, touched, held)] == [1, 0, 1]


def test_a_run_is_silent_without_a_live_lease_and_without_a_recent_word(database: Database) -> None:
    claim = claimed(database, known_key(database), "run-1")
    assert is_silent(database, "nobody", 60)
    assert not is_silent(database, "run-1", 60)

    expire_lease(database, claim.key)
    assert is_silent(database, "run-1", 60)

    transactions.advance(database, claim, Step.BEGIN)
    assert not is_silent(database, "run-1", 60)
    assert is_silent(database, "run-1", 0)


def test_a_silent_owner_makes_its_key_due(database: Database) -> None:
    claim = claimed(database, known_key(database))
    assert due(database) == []
    expire_lease(database, claim.key)
    assert due(database) == [claim.key]


def test_a_key_with_a_new_event_waits_for_the_run_that_holds_it(database: Database) -> None:
    claim = claimed(database, known_key(database))
    deliver(database, event_of_hour(identity="b" * 64))
    assert due(database) == []
    assert 50 < (seconds_until_due(database) or 0) <= 60
    expire_lease(database, claim.key)
    assert due(database) == [claim.key]


def test_a_key_to_be_tried_again_is_due_when_its_time_has_come(database: Database) -> None:
    assert seconds_until_due(database) is None
    claim = claimed(database, known_key(database))
    transactions.hand_back(database, claim, delay=40, reason="later")
    assert due(database) == []
    assert 30 < (seconds_until_due(database) or 0) <= 40
    make_due(database)
    assert due(database) == [claim.key]
    assert seconds_until_due(database) == 0
