"""Which keys are due, in which order, and which run was requested for them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from kfm_pipelines.dispatch.tables import (
    RecentDispatch,
    close_dispatch,
    due_keys,
    open_dispatches,
    postpone_untouched,
    recent_dispatches,
    record_dispatch,
    release_stalled,
    seconds_until_due,
    void_claims,
)
from kfm_pipelines.errors import ObjectMissing
from kfm_pipelines.state import transactions
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.liveness import ProcessLock, record_run
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.runs.keys import (
    begin,
    claimed,
    deliver,
    event_of_hour,
    expire_lease,
    known_key,
    row_of_key,
    skip,
)

DATASET = "usgs/streamflow"


def due(database: Database, *, limit: int = 100, taking_over: Sequence[str] = ()) -> list[str]:
    return [one.key for one in due_keys(database, DATASET, limit, taking_over=taking_over)]


def due_ago(database: Database, key: str, **ago: float) -> None:
    """The key became due this long ago, to the minute: the order goes by the minute."""
    when = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(**ago)
    database.execute("UPDATE kfm.keys SET due_at = %(when)s WHERE key = %(key)s", {"key": key, "when": when})


def deliver_due(database: Database, words: dict[int, str], **ago: float) -> dict[int, str]:
    """Keys of these hours with these priorities, all due at one time."""
    events = {hour: event_of_hour(hour, priority=word) for hour, word in words.items()}
    deliver(database, *events.values())
    for event in events.values():
        due_ago(database, event.key, **ago)
    return {hour: event.key for hour, event in events.items()}


def seconds_until(database: Database, key: str) -> float:
    return float((row_of_key(database, key)["due_at"] - datetime.now(UTC)).total_seconds())


def make_due(database: Database) -> None:
    database.execute("UPDATE kfm.keys SET due_at = clock_timestamp() WHERE owner IS NULL")


def test_urgent_keys_come_first_then_the_oldest_windows(database: Database) -> None:
    keys = deliver_due(database, {3: "low", 4: "normal", 5: "high", 1: "normal", 6: "high", 0: "low"})

    assert due(database) == [keys[hour] for hour in (5, 6, 1, 4, 0, 3)]
    assert due_keys(database, "another/dataset", 100) == []
    assert [one.priority for one in due_keys(database, DATASET, 100)] == [2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize("word", ["normal", "high"])
def test_of_equally_urgent_keys_the_one_due_first_is_first(database: Database, word: str) -> None:
    late = deliver_due(database, {0: word}, minutes=1)
    early = deliver_due(database, {7: word}, minutes=2)
    assert due(database) == [early[7], late[0]]


def test_a_low_key_comes_after_the_normal_ones_of_ten_minutes_and_no_more(database: Database) -> None:
    low = deliver_due(database, {3: "low"}, minutes=20)
    before = deliver_due(database, {4: "normal"}, minutes=11)
    after = deliver_due(database, {0: "normal"}, minutes=9)
    assert due(database) == [before[4], low[3], after[0]]


def test_windows_that_follow_each_other_stay_together_however_their_messages_came(database: Database) -> None:
    keys = [known_key(database, hour) for hour in (3, 1, 2)]
    minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)
    for second, key in enumerate(keys):
        database.execute(
            "UPDATE kfm.keys SET due_at = %(at)s WHERE key = %(key)s",
            {"key": key, "at": minute + timedelta(seconds=second)},
        )
    assert due(database) == sorted(keys)


def test_a_key_whose_holder_went_silent_has_its_turn_by_the_end_of_the_lease(database: Database) -> None:
    silent = claimed(database, deliver_due(database, {0: "normal"}, minutes=500)[0])
    database.execute("UPDATE kfm.keys SET lease_until = clock_timestamp() - interval '300 minutes'")
    older = deliver_due(database, {2: "normal"}, minutes=400)
    newer = deliver_due(database, {1: "normal"}, minutes=100)
    assert due(database) == [older[2], silent.key, newer[1]]


def test_many_urgent_keys_hide_no_other(database: Database) -> None:
    keys = deliver_due(database, {hour: "high" if hour < 5 else "normal" for hour in range(10)})
    assert due(database, limit=2) == [keys[0], keys[1], keys[5], keys[6]]


def test_many_keys_under_one_prefix_hide_no_other(database: Database) -> None:
    keys = deliver_due(database, dict.fromkeys(range(30), "normal"))
    day = keys[0].partition("T")[0]
    found = due_keys(database, DATASET, 2, prefixes=[day, "another:"])
    assert [one.key for one in found] == [keys[0], keys[1], keys[24], keys[25]]


def test_a_dispatch_is_as_urgent_as_its_most_urgent_key(database: Database) -> None:
    keys = deliver_due(database, {0: "low", 1: "normal", 2: "high", 3: "low"})
    assert record_dispatch(database, "urgent", DATASET, [keys[1], keys[2]])
    assert record_dispatch(database, "others", DATASET, [keys[0], keys[3]])

    found = database.fetch("SELECT run_key, priority FROM kfm.dispatches ORDER BY requested_at")
    assert [(row["run_key"], row["priority"]) for row in found] == [("urgent", 2), ("others", 0)]
    close_dispatch(database, "others")
    assert recent_dispatches(database, 5) == [
        RecentDispatch(DATASET, urgent=False),
        RecentDispatch(DATASET, urgent=True),
    ]
    assert recent_dispatches(database, 1) == [RecentDispatch(DATASET, urgent=False)]


def priority_after(database: Database, settle: Callable[[Claim], None], *later: str) -> int:
    """The priority of an urgent key after its end, when events of these priorities came while it was worked on."""
    event = event_of_hour(priority="high")
    deliver(database, event)
    claim = claimed(database, event.key)
    begin(database, claim)
    for number, word in enumerate(later):
        deliver(database, event_of_hour(identity=f"{number + 100:064x}", priority=word))
    settle(claim)
    priority: int = row_of_key(database, event.key)["priority"]
    return priority


@pytest.mark.parametrize(("later", "expected"), [((), 0), (("low",), 0), (("low", "normal"), 1), (("high", "low"), 2)])
def test_a_settled_key_is_as_urgent_as_the_events_that_wait(
    database: Database, later: tuple[str, ...], expected: int
) -> None:
    assert priority_after(database, lambda claim: skip(database, claim, {}), *later) == expected


def test_a_failed_key_is_urgent_no_more(database: Database) -> None:
    def fail(claim: Claim) -> None:
        transactions.fail(database, claim, "compute", ObjectMissing("gone"), retry_in=1)

    assert priority_after(database, fail) == 0


def test_a_key_that_comes_again_is_as_urgent_as_before(database: Database) -> None:
    def hand_back(claim: Claim) -> None:
        transactions.hand_back(database, claim, delay=0, reason="later")

    assert priority_after(database, hand_back) == 2


def test_a_dispatched_key_is_not_due_for_another_run(database: Database) -> None:
    keys = [known_key(database, hour) for hour in range(3)]

    assert record_dispatch(database, "run-key", DATASET, keys[:2])

    assert due(database) == keys[2:]
    assert due(database, taking_over=["run-key"]) == keys
    [one] = open_dispatches(database)
    assert (one.run_key, one.dataset, one.keys) == ("run-key", DATASET, tuple(keys[:2]))
    assert 0 <= one.age_seconds < 30


def test_a_worker_takes_over_the_keys_of_a_request(database: Database) -> None:
    key = known_key(database)
    assert record_dispatch(database, "request", DATASET, [key])
    assert not record_dispatch(database, "worker", DATASET, [key], process=7)
    assert record_dispatch(database, "worker", DATASET, [key], process=7, taking_over=["request"])

    close_dispatch(database, "request")

    assert row_of_key(database, key)["dispatch"] == "worker"
    assert [one.process for one in open_dispatches(database)] == [7]


def test_a_dispatch_gets_all_its_keys_or_none(database: Database) -> None:
    keys = [known_key(database, hour) for hour in range(3)]
    assert record_dispatch(database, "winner", DATASET, keys[:2])

    assert not record_dispatch(database, "loser", DATASET, keys[1:])

    assert [one.run_key for one in open_dispatches(database)] == ["winner"]
    assert due(database) == keys[2:]
    assert row_of_key(database, keys[2])["dispatches"] == 0


def test_a_run_key_cannot_be_used_twice(database: Database) -> None:
    key = known_key(database)
    assert record_dispatch(database, "run-key", DATASET, [key])
    close_dispatch(database, "run-key")

    # From a process that saw the key due before it was dispatched: Dagster would silently drop this request.
    assert not record_dispatch(database, "run-key", DATASET, [key])

    assert due(database) == [key]


def test_each_dispatch_of_a_key_has_its_own_run_key(database: Database) -> None:
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
    begin(database, settled)
    skip(database, settled, {})

    close_dispatch(database, "run-key")

    assert open_dispatches(database) == []
    assert due(database) == keys[1:]


def test_what_an_ended_run_held_is_due_again_and_others_keep_theirs(database: Database) -> None:
    held, others = (claimed(database, known_key(database, hour), owner) for hour, owner in ((1, "ended"), (2, "alive")))

    assert void_claims(database, "ended", lambda _: 40) == 1

    assert due(database) == []
    assert 30 < (seconds_until_due(database, declared()) or 0) <= 40
    make_due(database)
    assert due(database) == [held.key]
    assert row_of_key(database, others.key)["owner"] == "alive"
    assert row_of_key(database, held.key)["epoch"] == held.epoch


def test_the_retry_delay_of_each_key_depends_on_its_attempts(database: Database) -> None:
    keys = [claimed(database, known_key(database, hour), "ended").key for hour in range(3)]
    for attempts, key in enumerate(keys, start=1):
        database.execute(
            "UPDATE kfm.keys SET attempts = %(attempts)s WHERE key = %(key)s", {"key": key, "attempts": attempts}
        )

    void_claims(database, "ended", lambda attempts: 1000.0 * attempts)

    assert [round(seconds_until(database, key), -2) for key in keys] == [1000, 2000, 3000]
    assert [row_of_key(database, key)["attempts"] for key in keys] == [1, 2, 3]


def test_a_failed_run_counts_as_an_attempt_of_its_untouched_keys(database: Database) -> None:
    untouched, touched, held = (known_key(database, hour) for hour in (1, 2, 3))
    claim = claimed(database, touched, "failed")
    begin(database, claim)
    transactions.hand_back(database, claim, delay=0, reason="later", count_attempt=False)
    claimed(database, held, "alive")

    assert postpone_untouched(database, "failed", [untouched, touched, held], lambda attempts: 1000.0 * attempts) == 1

    assert round(seconds_until(database, untouched), -2) == 1000
    assert due(database) == [touched]
    assert [row_of_key(database, key)["attempts"] for key in (untouched, touched, held)] == [1, 0, 1]


def begun(database: Database, run_id: str, seconds_ago: float, process: int = 1) -> None:
    record_run(database, run_id, process)
    database.execute(
        "UPDATE kfm.run_processes SET begun_at = clock_timestamp() - make_interval(secs => %(seconds)s)"
        " WHERE run_id = %(run_id)s",
        {"run_id": run_id, "seconds": seconds_ago},
    )


def test_keys_of_a_stopped_run_are_released_but_not_its_dispatch(database: Database) -> None:
    keys = [known_key(database, hour) for hour in range(3)]
    assert record_dispatch(database, "run-key", DATASET, keys)
    begun(database, "run-1", seconds_ago=40)
    held = claimed(database, keys[0], "run-1")
    assert release_stalled(database, {"run-key": "run-1"}, 35) == 0

    expire_lease(database, held.key)
    assert release_stalled(database, {"run-key": "run-1"}, 50) == 0  # it has just begun
    assert release_stalled(database, {"run-key": "run-1"}, 35) == 3  # those it had not yet claimed as well

    assert due(database) == keys
    assert [one.run_key for one in open_dispatches(database)] == ["run-key"]
    assert record_dispatch(database, "another", DATASET, keys)


def test_a_run_stopped_in_a_transaction_loses_its_locks(database: Database) -> None:
    keys = [known_key(database, hour) for hour in range(2)]
    assert record_dispatch(database, "run-key", DATASET, keys)
    lock = "SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE"
    with open_process(database) as (stopped, number), open_process(database) as (alive, _), ExitStack() as sessions:
        begun(database, "run-1", seconds_ago=40, process=number)
        expire_lease(database, claimed(database, keys[0], "run-1").key)
        session = sessions.enter_context(stopped.transaction())
        session.execute(lock, {"key": keys[0]})
        with alive.transaction() as other:  # of a process that renews its leases
            other.execute(lock, {"key": known_key(database, 5)})
            assert release_stalled(database, {"run-key": "run-1"}, 35) == 2
            other.execute("SELECT 1")
        with pytest.raises(psycopg.errors.AdminShutdown):
            session.execute("SELECT 1")
        session.close()


@contextmanager
def open_process(database: Database) -> Iterator[tuple[Database, int]]:
    """Opens what a process of its own would have: its connections and its lock."""
    own = Database(database._url)
    lock = ProcessLock(own)
    yield own, lock.number
    lock.close()
    own.close()


def test_a_silent_owner_makes_its_key_due(database: Database) -> None:
    claim = claimed(database, known_key(database))
    assert due(database) == []
    expire_lease(database, claim.key)
    assert due(database) == [claim.key]


def test_a_key_with_a_new_event_waits_for_the_run_that_holds_it(database: Database) -> None:
    claim = claimed(database, known_key(database))
    deliver(database, event_of_hour(identity="b" * 64))
    assert due(database) == []
    assert 50 < (seconds_until_due(database, declared()) or 0) <= 60
    expire_lease(database, claim.key)
    assert due(database) == [claim.key]


def test_a_key_to_be_tried_again_is_due_when_its_time_has_come(database: Database) -> None:
    assert seconds_until_due(database, declared()) is None
    claim = claimed(database, known_key(database))
    transactions.hand_back(database, claim, delay=40, reason="later")
    assert due(database) == []
    assert 30 < (seconds_until_due(database, declared()) or 0) <= 40
    make_due(database)
    assert due(database) == [claim.key]
    assert seconds_until_due(database, declared()) == 0
    # Otherwise a worker would wait for ever for a dataset that is no longer declared.
    assert seconds_until_due(database, ["another/dataset"]) is None
