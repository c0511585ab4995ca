"""The kill switch: once `kill` has returned, no running publication can still swap."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from kfm_pipelines.dispatch.tables import seconds_until_due
from kfm_pipelines.errors import DatasetKilled, StillPublishing
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.database import LOCK_SECONDS, Database
from kfm_pipelines.state.keys import Claim
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.runs.keys import claimed, kill_moves, known_key, open_publication

DATASET = "usgs/streamflow"


def kill(database: Database, reason: str = "wrong datum", **how: float) -> None:
    kill_switch.kill(database, DATASET, "ada", reason, **how)


def await_waiter(database: Database) -> None:
    """Waits until a kill waits at the barrier."""
    deadline = time.monotonic() + 10
    while not database.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
        assert time.monotonic() < deadline, "no kill came to the barrier"
        time.sleep(0.01)


@contextmanager
def killing(database: Database) -> Iterator[None]:
    """Runs the block while a kill waits at the barrier."""
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(kill, database)
        await_waiter(database)
        assert not under_way.done()
        yield
        under_way.result(timeout=10)


def test_every_move_is_kept_with_its_actor_and_reason(database: Database) -> None:
    assert kill_switch.killed_datasets(database) == {}
    assert not kill_switch.unkill(database, DATASET, "ada", "never was")
    kill(database)
    kill_switch.kill(database, DATASET, "bob", "and wrong units")

    [killed] = kill_switch.killed_datasets(database).values()
    assert str(killed) == "usgs/streamflow is killed by bob: and wrong units"
    assert kill_switch.unkill(database, DATASET, "ada", "corrected")
    assert kill_switch.killed_datasets(database) == {}
    assert not kill_switch.unkill(database, DATASET, "ada", "corrected")
    assert kill_moves(database) == [
        (True, "ada", "wrong datum"),
        (True, "bob", "and wrong units"),
        (False, "ada", "corrected"),
    ]


def test_what_is_killed_cannot_be_published_and_others_can(database: Database) -> None:
    claim = claimed(database, known_key(database))
    kill(database)

    with pytest.raises(DatasetKilled, match="killed by ada: wrong datum"), open_publication(database, claim, DATASET):
        pytest.fail("it was not refused")
    database.execute("UPDATE kfm.keys SET dataset = 'usda/soil'")
    with open_publication(database, claim, "usda/soil"):
        pass
    database.execute("UPDATE kfm.keys SET dataset = %(dataset)s", {"dataset": DATASET})
    kill_switch.unkill(database, DATASET, "ada", "corrected")
    with open_publication(database, claim, DATASET) as locked:
        locked.refuse_if_killed()


def test_a_kill_waits_for_the_swap_under_way(database: Database) -> None:
    claim = claimed(database, known_key(database))
    with ThreadPoolExecutor(1) as pool:
        with open_publication(database, claim, DATASET):
            under_way = pool.submit(kill, database)
            await_waiter(database)
            time.sleep(0.3)
            assert not under_way.done()
        under_way.result(timeout=10)


def test_while_a_kill_waits_another_publication_is_refused_at_once(database: Database) -> None:
    first, second = (claimed(database, known_key(database, hour)) for hour in (1, 2))
    with publishing_in_background(database, first) as over, killing(database):
        begun = time.monotonic()
        with pytest.raises(DatasetKilled), open_publication(database, second, DATASET):
            pytest.fail("it was not refused")
        # Waiting for the lock timeout would cost the key an attempt.
        assert time.monotonic() - begun < LOCK_SECONDS / 2
        kill_switch.unkill(database, DATASET, "ada", "too soon")
        with pytest.raises(DatasetKilled, match="a moment ago"), open_publication(database, second, DATASET):
            pytest.fail("it was not refused")
        over.set()
    with open_publication(database, second, DATASET):
        pass


def test_a_publication_under_way_sees_the_kill_before_its_swap(database: Database) -> None:
    claim = claimed(database, known_key(database))
    with ThreadPoolExecutor(1) as pool:
        with open_publication(database, claim, DATASET) as locked:
            locked.refuse_if_killed()
            under_way = pool.submit(kill, database)
            await_waiter(database)
            with pytest.raises(DatasetKilled):
                locked.refuse_if_killed()
        under_way.result(timeout=10)


def test_what_readers_see_already_is_completed(database: Database) -> None:
    claim = claimed(database, known_key(database))
    kill(database)
    with open_publication(database, claim, DATASET, visible=True) as locked, pytest.raises(DatasetKilled):
        locked.refuse_if_killed()  # should it have to be swapped after all


def test_a_kill_stops_waiting_and_reports_running_publications(database: Database) -> None:
    claims = [claimed(database, known_key(database, hour)) for hour in (1, 2)]
    with open_publication(database, claims[0], DATASET), open_publication(database, claims[1], DATASET):
        with pytest.raises(StillPublishing, match="still running after 0 s: 2; kill it again"):
            kill(database, wait_seconds=0.2)
        assert DATASET in kill_switch.killed_datasets(database)
    kill(database, wait_seconds=0.2)


def test_two_kills_at_once_are_both_recorded_and_both_return(database: Database) -> None:
    claim = claimed(database, known_key(database))
    with ThreadPoolExecutor(2) as pool:
        with open_publication(database, claim, DATASET):
            both = [pool.submit(kill, database, reason) for reason in ("one", "two")]
            time.sleep(0.3)
            assert not any(one.done() for one in both)
        for one in both:
            one.result(timeout=10)
    assert sorted(reason for _, _, reason in kill_moves(database)) == ["one", "two"]


def test_a_worker_does_not_wait_for_what_is_killed(database: Database) -> None:
    known_key(database)
    assert seconds_until_due(database, declared()) == 0
    kill(database)
    assert seconds_until_due(database, declared()) is None
    assert [(killed.dataset, keys) for killed, keys in kill_switch.killed_with_due_keys(database)] == [(DATASET, 1)]


def test_whether_a_run_can_have_met_the_switch(database: Database) -> None:
    assert not kill_switch.was_killed_within(database, DATASET, 60)
    kill(database)
    assert kill_switch.was_killed_within(database, DATASET, 0)
    kill_switch.unkill(database, DATASET, "ada", "corrected")
    assert kill_switch.was_killed_within(database, DATASET, 60)
    assert not kill_switch.was_killed_within(database, DATASET, 0)


def test_after_a_kill_has_returned_nothing_more_is_published(database: Database) -> None:
    """Twenty rounds of four threads that publish one key after the other, and a kill at a moment of its own."""
    claims = [claimed(database, known_key(database, hour)) for hour in range(4)]
    for number in range(20):
        published: list[int] = []
        over = threading.Event()
        with ThreadPoolExecutor(4) as pool:
            threads = [pool.submit(_publish_on, database, claim, published, over) for claim in claims]
            time.sleep(random.Random(number).uniform(0.02, 0.1))
            kill(database)
            at_return = len(published)
            time.sleep(0.05)
            over.set()
            refused = sum(thread.result(timeout=20) for thread in threads)
        assert len(published) == at_return
        assert at_return > 0
        assert refused > 0
        kill_switch.unkill(database, DATASET, "ada", "next round")


def _publish_on(database: Database, claim: Claim, published: list[int], over: threading.Event) -> int:
    """Swap again and again; how often it was refused."""
    refused = 0
    while not over.is_set():
        try:
            with open_publication(database, claim, DATASET) as locked:
                locked.refuse_if_killed()
                time.sleep(0.002)
                published.append(claim.epoch)
        except DatasetKilled:
            refused += 1
    return refused


@contextmanager
def publishing_in_background(database: Database, claim: Claim) -> Iterator[threading.Event]:
    """A publication that goes on until the event is set."""
    begun, over = threading.Event(), threading.Event()

    def publish() -> None:
        with open_publication(database, claim, DATASET):
            begun.set()
            over.wait(20)

    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(publish)
        assert begun.wait(10)
        try:
            yield over
        finally:
            over.set()
            under_way.result(timeout=10)
