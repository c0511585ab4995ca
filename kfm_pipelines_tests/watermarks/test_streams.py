"""Watermarks in the database: the same for any order of events, and never moving back."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm_pipelines.declarations import DueRule, LateRule
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.watermarks import steps
from kfm_pipelines.watermarks.due import close_windows
from kfm_pipelines.watermarks.late import reevaluate_lateness, tick_watermarks
from kfm_pipelines.watermarks.progress import Sweep
from kfm_pipelines.watermarks.queries import read_watermark_status
from kfm_pipelines.watermarks.streams import advance_watermarks
from kfm_pipelines_tests.fixtures.runs.keys import new_database
from kfm_pipelines_tests.fixtures.runs.streams import (
    DATASET,
    HOUR,
    LATER,
    RULE,
    START,
    checkpoints,
    computed,
    computed_checkpoints,
    delete_all,
    event_about,
    hours,
    record_events,
    stored,
    streams,
)

STREAMS = streams()


@pytest.fixture(scope="module")
def shared(stack: Stack, site_template: str) -> Iterator[Database]:
    """One database for many examples, each of which starts by deleting everything."""
    with new_database(stack, site_template) as opened:
        yield opened


def whole(database: Database) -> datetime | None:
    return checkpoints(database).get("*")


events = st.lists(
    st.builds(
        event_about,
        about=st.integers(0, 18),
        # Early, late, and sometimes far ahead of everything.
        made=st.one_of(st.integers(0, 20), st.integers(0, 20), st.sampled_from([-30, 45, 300, 90_000])),
        site=st.sampled_from(["a", "a", "b", "c"]),
        part=st.integers(0, 1),
        change=st.sampled_from(["created", "created", "created", "deleted"]),
    ),
    min_size=1,
    max_size=16,
)


@given(events, st.randoms(use_true_random=False), st.sampled_from(["patch", "replay", "quarantine"]))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_delivery_ends_in_the_same_watermarks(
    shared: Database,
    monkeypatch: pytest.MonkeyPatch,
    events: list[IngestEvent],
    chance: random.Random,
    rule: LateRule,
) -> None:
    """With batches of any size, redelivery, repetition with another time, and jumping clocks."""
    datasets = streams(late=rule)
    monkeypatch.setattr(steps, "ADVANCE_PAGE_SIZE", chance.choice([1, 2, 1000]))  # small pages stop a sweep early
    delete_all(shared)
    repeated_later = [replace(one, event_time=one.event_time + chance.choice([-5, 7]) * HOUR) for one in events[:2]]
    arriving = [*events, *repeated_later, *chance.choices(events, k=3)]
    chance.shuffle(arriving)
    highest: datetime | None = None
    while arriving:
        size = chance.randint(1, 5)
        batch, arriving = arriving[:size], arriving[size:]
        clock = hours(chance.choice([-100, 3, 9, 15, 21, 30]))
        record_events(shared, datasets, *batch, now=clock)
        if chance.random() < 0.5:
            tick_watermarks(shared, datasets, now=clock)
        mark = whole(shared)
        assert highest is None or (mark is not None and mark >= highest)
        highest = mark
    tick_watermarks(shared, datasets, now=LATER)

    expected = computed([*events, *repeated_later], datasets[DATASET])
    assert stored(shared) == expected
    assert checkpoints(shared) == computed_checkpoints(expected, LATER, RULE)
    assert shared.fetch("SELECT * FROM kfm.late_again") == []
    [row] = shared.fetch(
        """
        SELECT count(*) FILTER (WHERE l.rule <> %(rule)s OR l.state <>
                   CASE i.change WHEN 'created' THEN %(state)s ELSE 'applied' END) AS otherwise,
               count(*) FILTER (WHERE (i.ready_at = 'infinity') IS DISTINCT FROM (l.state = 'held' OR NULL)) AS unheld
        FROM kfm.inbox i LEFT JOIN kfm.late l ON l.identity = i.identity
        """,
        {"state": "applied" if rule == "patch" else "held", "rule": rule},
    )
    assert row == {"otherwise": 0, "unheld": 0}


def test_recording_advances_in_the_same_transaction(database: Database) -> None:
    record_events(database, STREAMS, event_about(3, 3), event_about(4, 4), now=hours(5))
    assert checkpoints(database) == {"a": hours(2), "*": hours(2)}


def test_an_event_from_the_future_moves_nothing(database: Database) -> None:
    """Neither data from the future nor a producer's clock that is years ahead."""
    record_events(database, STREAMS, event_about(3, 3), now=hours(5))
    before = checkpoints(database)
    record_events(database, STREAMS, event_about(400, 4), event_about(399_999, 400_000), now=hours(5))
    tick_watermarks(database, STREAMS, now=hours(6))
    assert checkpoints(database) == before
    record_events(database, STREAMS, event_about(2, 6), now=hours(7))
    assert stored(database).late == {}


def test_an_idle_stream_no_longer_holds_back_the_others(database: Database) -> None:
    fast = [event_about(hour, hour, "fast") for hour in (8, 9)]
    record_events(database, STREAMS, event_about(2, 2, "slow"), *fast, now=hours(9))
    idle = replace(event_about(8, 8.5, "slow"), partition="slow", granule_start=hours(8))
    assert whole(database) == hours(7)  # the slow one was idle before the fast one came
    record_events(database, STREAMS, idle, event_about(11, 11, "fast"), now=hours(11))
    assert whole(database) == hours(7)
    assert advance_watermarks(database, STREAMS, hours(11.4)) == []
    assert advance_watermarks(database, STREAMS, hours(11.5)) == [DATASET]
    assert whole(database) == hours(9)


def test_the_status_names_the_stream_that_holds_back_the_others(database: Database) -> None:
    events = [event_about(2, 2, "slow"), event_about(3, 3, "fast"), event_about(0, 1, "gone")]
    record_events(database, STREAMS, *events, now=hours(4))
    found = read_watermark_status(database, STREAMS[DATASET], hours(4.5))
    assert (found.watermark, found.lag, found.held_back_by) == (hours(0), 4.5 * HOUR, "slow")
    assert [(one.partition, one.active, one.watermark) for one in found.streams] == [
        ("fast", True, hours(1)),
        ("gone", False, hours(-2)),
        ("slow", True, hours(0)),
    ]
    assert read_watermark_status(database, STREAMS[DATASET], LATER).held_back_by is None


def test_checkpoints_never_move_back_even_after_a_restart(database: Database, stack: Stack) -> None:
    record_events(database, STREAMS, event_about(9, 9), now=hours(10))
    database.close()  # the next statement opens new connections, as another process would
    record_events(database, STREAMS, event_about(4, 8.5, "b"), now=hours(-50))
    tick_watermarks(database, STREAMS, now=hours(-40))
    assert checkpoints(database) == {"a": hours(7), "*": hours(7)}
    with pytest.raises(TransitionIllegal, match="may not go back"):
        database.execute("UPDATE kfm.checkpoints SET watermark = watermark - interval '1 s'")


def test_only_rows_after_the_change_are_rewritten(database: Database) -> None:
    """Steps and advances before the new event keep their rows."""
    events = [event_about(hour, hour) for hour in range(30)]
    record_events(database, STREAMS, *events, now=LATER)
    rows = "SELECT at, xmin::text FROM kfm.{} WHERE at < '2025-12-04T20:00Z' ORDER BY at"
    before = [database.fetch(rows.format(table)) for table in ("advances", "watermark_steps")]
    record_events(database, STREAMS, event_about(21, 20.5), now=LATER)
    assert [database.fetch(rows.format(table)) for table in ("advances", "watermark_steps")] == before
    assert stored(database) == computed([*events, event_about(21, 20.5)], STREAMS[DATASET])


@pytest.mark.slow
def test_concurrent_recording_reevaluation_and_closing_end_the_same(database: Database) -> None:
    """No deadlocks, the watermark only rises, and nothing is missed."""
    datasets = streams(late="replay", due=DueRule(when="on_close", wait=timedelta(days=900)))
    all_events = [
        event_about(about, about + delay, site, part)
        for site in ("a", "b", "c")
        for about in range(0, 40, 2)
        for part, delay in ((0, 1), (1, 9 if about % 3 else 2))
    ]
    done, seen = threading.Event(), []

    def recorder(seed: int) -> None:
        chance = random.Random(seed)
        arriving = chance.sample(all_events, len(all_events))
        for start in range(0, len(arriving), 8):
            record_events(database, datasets, *arriving[start : start + 8], now=hours(chance.choice([10, 30, 60])))

    def repeated(action: Callable[[], object]) -> int:
        rounds = 0
        while not done.is_set():
            action()
            rounds += 1
        return rounds

    def watch() -> None:
        seen.append(whole(database))

    with ThreadPoolExecutor(8) as pool:
        others = [
            pool.submit(repeated, lambda: reevaluate_lateness(database, datasets)),
            pool.submit(repeated, lambda: close_windows(database, datasets)),
            pool.submit(repeated, lambda: advance_watermarks(database, datasets, hours(20))),
            pool.submit(repeated, watch),
        ]
        recorders = [pool.submit(recorder, seed) for seed in range(4)]
        try:
            assert [one.result(60) for one in recorders] == [None] * 4
        finally:
            done.set()
        assert all(one.result(60) > 0 for one in others)

    marks = [mark for mark in seen if mark is not None]
    assert marks == sorted(marks)
    tick_watermarks(database, datasets, now=LATER)
    expected = computed(all_events, datasets[DATASET])
    assert len(expected.late) > 10
    assert stored(database) == expected
    assert checkpoints(database) == computed_checkpoints(expected, LATER, RULE)
    rows = database.fetch(
        """
        SELECT k.due_at IS NOT NULL AS due, bool_or(l.state IS DISTINCT FROM 'held') AS counts
        FROM kfm.keys k JOIN kfm.inbox i ON i.key = k.key LEFT JOIN kfm.late l ON l.identity = i.identity
        GROUP BY k.key
        """
    )
    assert all(row["due"] for row in rows if row["counts"])


def test_events_recorded_before_watermarks_existed_are_left_alone(database: Database) -> None:
    record_events(database, STREAMS, event_about(1, 1), now=hours(2))
    database.execute("UPDATE kfm.inbox SET made_at = NULL, data_time = NULL")
    for table in ("advances", "watermark_steps", "checkpoints"):
        database.execute(f"DELETE FROM kfm.{table}")
    record_events(database, STREAMS, event_about(1, 1), event_about(5, 5), now=hours(6))
    assert stored(database) == computed([event_about(1, 1), event_about(5, 5)], STREAMS[DATASET])
    assert stored(database).advances[0][1].at == START + timedelta(hours=1)


@pytest.mark.parametrize("change", [{"out_of_order": 9 * HOUR}, {"idle_after": HOUR}, {"skew": 30 * HOUR}])
def test_a_changed_rule_applies_from_the_beginning(database: Database, change: dict[str, timedelta]) -> None:
    """Whether a tick or an event applies it, and when it is changed back."""
    before = streams("quarantine")
    after = streams("quarantine", watermark=RULE.model_copy(update=change))
    recorded = [event_about(hour, hour) for hour in (1, 2, 5, 9)]
    recorded += [event_about(1, 10, part=1), event_about(6, 9.5, part=1)]
    recorded += [event_about(about, made, "b") for about, made in ((1, 3), (4, 8), (26, 6))]
    recorded += [event_about(3, 7, "b", part=1)]
    record_events(database, before, *recorded)
    expected = [computed(recorded, datasets[DATASET]) for datasets in (before, after)]
    assert stored(database) == expected[0] != expected[1]

    tick_watermarks(database, after, now=hours(10))
    assert stored(database) == expected[1]

    last = event_about(8, 10.5, part=3)
    record_events(database, before, last)
    reevaluate_lateness(database, before)
    assert stored(database) == computed([*recorded, last], before[DATASET])


def test_an_old_message_does_not_sweep_over_everything_since(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "ADVANCE_PAGE_SIZE", 10)
    recorded = [event_about(hour, hour + 0.1, site) for hour in range(100) for site in ("a", "b")]
    record_events(database, STREAMS, *recorded, now=LATER)
    swept: list[int] = []
    go_on = Sweep.process

    def counted(sweep: Sweep, advances: list[Any]) -> list[Any]:
        swept.append(len(advances))
        return go_on(sweep, advances)

    monkeypatch.setattr(Sweep, "process", counted)
    for old in (event_about(-9000, -9000), event_about(-8000, -8000, "c"), event_about(2, 1.5)):
        swept.clear()
        recorded.append(old)
        record_events(database, STREAMS, old, now=LATER)
        assert sum(swept) <= 20
        assert all(row["until"] < hours(20) for row in database.fetch("SELECT until FROM kfm.late_again"))
        assert stored(database).steps == computed(recorded, STREAMS[DATASET]).steps


def test_a_sweep_continues_while_a_late_stream_holds_back_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the watermark agrees with the stored steps for a while."""
    monkeypatch.setattr(steps, "ADVANCE_PAGE_SIZE", 1)
    moves = [(2, 2, "a"), (2, 2.7, "c"), (3, 3, "a"), (3, 3.2, "c"), (1, 2.5, "b")]
    recorded = [event_about(about, made, site) for about, made, site in moves]
    for one in recorded:
        record_events(database, STREAMS, one)
    assert stored(database).steps == computed(recorded, STREAMS[DATASET]).steps


def test_streams_beyond_the_limit_are_ignored(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that matches a file instead of a site must not make each message cost more than the last."""
    monkeypatch.setattr("kfm_pipelines.watermarks.streams.MAX_STREAMS", 2)
    for batch in ([(3, 3, "a"), (3, 3, "b"), (1, 3, "c")], [(2, 3, "d"), (4, 4, "a"), (4, 4, "b")]):
        record_events(database, STREAMS, *(event_about(*event) for event in batch), now=hours(4))
    assert checkpoints(database) == {"a": hours(2), "b": hours(2), "*": hours(2)}
    assert len(database.fetch("SELECT FROM kfm.inbox")) == 6
