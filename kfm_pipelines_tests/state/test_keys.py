"""Claims: one worker at a time, silence ends a lease, and the epoch says who is too late (I5)."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kfm_pipelines.errors import Fenced, KeyBusy, KeyInvalid
from kfm_pipelines.stages.publish.tables import CommittedRelease
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.keys import Claim, Claims
from kfm_pipelines.state.transactions import hand_back
from kfm_pipelines_tests.fixtures.runs.keys import (
    claimed,
    expire_lease,
    known_key,
    open_publication,
    revision,
    row_of_key,
)

DATASET = "usgs/streamflow"


def seconds_left(database: Database, key: str) -> float:
    [row] = database.fetch(
        "SELECT extract(epoch FROM lease_until - clock_timestamp())::float AS left FROM kfm.keys WHERE key = %(key)s",
        {"key": key},
    )
    return float(row["left"])


def test_a_claim_is_a_lease_by_the_clock_of_the_database(database: Database) -> None:
    claim = claimed(database, known_key(database), lease_seconds=60)

    assert claim == Claim(claim.key, epoch=1, attempts=1, owner="run-1")
    assert 55 < seconds_left(database, claim.key) <= 60
    assert row_of_key(database, claim.key)["due_at"] is None


def test_a_held_key_is_busy_until_its_lease_runs_out(database: Database) -> None:
    first = claimed(database, known_key(database), "run-1")
    with pytest.raises(KeyBusy, match="held by run run-1 until "):
        claimed(database, first.key, "run-2")

    expire_lease(database, first.key)

    assert claimed(database, first.key, "run-2").epoch == first.epoch + 1
    assert row_of_key(database, first.key)["owner"] == "run-2"


def test_a_lease_runs_out_by_itself(database: Database) -> None:
    first = claimed(database, known_key(database), "run-1", lease_seconds=1)
    time.sleep(seconds_left(database, first.key) + 0.05)
    assert claimed(database, first.key, "run-2").epoch == first.epoch + 1


def test_the_same_owner_may_claim_again_and_fences_its_former_self(database: Database) -> None:
    first = claimed(database, known_key(database))
    second = claimed(database, first.key)

    assert (second.epoch, second.attempts) == (first.epoch + 1, first.attempts + 1)
    with pytest.raises(Fenced):
        hand_back(database, first, delay=0, reason="too late")


def test_a_free_key_goes_to_exactly_one_of_many(database: Database) -> None:
    key = known_key(database)

    def try_to_take(number: int) -> Claim | None:
        try:
            return claimed(database, key, f"run-{number}")
        except KeyBusy:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [claim for claim in pool.map(try_to_take, range(8)) if claim]
    assert [claim.epoch for claim in won] == [1]
    assert row_of_key(database, key)["owner"] == won[0].owner


def test_a_key_no_event_has_named_cannot_be_claimed(database: Database) -> None:
    with pytest.raises(KeyInvalid, match="no event has named this key"):
        claimed(database, "a:b:none:d:e")


def test_a_run_holds_what_it_claimed_and_nobody_took(database: Database) -> None:
    claims = Claims(database, "run-1", 60)
    kept, lost, given_back = (claims.take(known_key(database, hour)) for hour in (1, 2, 3))
    hand_back(database, given_back, delay=0, reason="enough")
    expire_lease(database, lost.key)
    claimed(database, lost.key, "run-2")

    assert claims.held() == {kept.key: kept}


def test_renewing_prolongs_the_own_leases_and_no_others(database: Database) -> None:
    claims = Claims(database, "run-1", 60)
    own, lost = (claims.take(known_key(database, hour)) for hour in (1, 2))
    for claim in (own, lost):
        expire_lease(database, claim.key)
    claimed(database, lost.key, "run-2", lease_seconds=5)

    claims.renew()

    assert seconds_left(database, own.key) > 55
    assert seconds_left(database, lost.key) <= 5


def test_renewing_does_not_wait_for_a_key_that_is_being_published(database: Database) -> None:
    claims = Claims(database, "run-1", 60)
    locked, free = (claims.take(known_key(database, hour)) for hour in (1, 2))
    for claim in (locked, free):
        expire_lease(database, claim.key)

    with open_publication(database, locked, DATASET):
        claims.renew()
        assert seconds_left(database, free.key) > 55


@pytest.mark.slow
def test_a_short_lease_is_kept_alive_while_the_work_goes_on_and_no_longer(database: Database) -> None:
    claims = Claims(database, "run-1", lease_seconds=1)
    claim = claims.take(known_key(database))

    with claims.keep_alive():
        until = time.monotonic() + 2.2
        while time.monotonic() < until:
            with pytest.raises(KeyBusy):
                claimed(database, claim.key, "run-2")
            time.sleep(0.1)
    time.sleep(1.05)

    assert claimed(database, claim.key, "run-2").epoch == claim.epoch + 1


def test_a_stalled_worker_that_wakes_up_cannot_publish(database: Database) -> None:
    stalled = claimed(database, known_key(database), "run-1")
    expire_lease(database, stalled.key)
    claimed(database, stalled.key, "run-2")

    with (
        pytest.raises(Fenced, match="another worker took over"),
        open_publication(database, stalled, DATASET) as locked,
    ):
        locked.commit([CommittedRelease(stalled, revision(stalled.key), {}, [])])

    assert database.fetch("SELECT FROM kfm.revisions") == []


def test_a_key_is_for_those_who_work_for_its_dataset(database: Database) -> None:
    key = known_key(database)
    before = row_of_key(database, key)
    others = Claims(database, "run-1", 60, dataset="usda/soil")
    with pytest.raises(KeyInvalid, match="is a key of usgs/streamflow, not of usda/soil"):
        others.take(key)
    assert row_of_key(database, key) == before

    claim = Claims(database, "run-1", 60, dataset=DATASET).take(key)
    assert others.held() == {}
    for seen in (False, True):
        with (
            pytest.raises(Fenced, match="not of usda/soil"),
            open_publication(database, claim, "usda/soil", visible=seen),
        ):
            pytest.fail("it was not refused")


def test_a_takeover_waits_for_the_swap_under_way(database: Database) -> None:
    publisher = claimed(database, known_key(database), "run-1")
    expire_lease(database, publisher.key)

    with ThreadPoolExecutor(1) as pool:
        with open_publication(database, publisher, DATASET):
            takeover = pool.submit(claimed, database, publisher.key, "run-2")
            time.sleep(0.3)
            assert not takeover.done()
        assert takeover.result(timeout=10).epoch == publisher.epoch + 1


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("owner = 'run-2'", "a new owner of .* needs a new epoch"),
        ("epoch = epoch - 1", "may not go back from 1 to 0"),
        ("epoch = epoch - 1, owner = 'run-2'", "may not go back from 1 to 0"),
    ],
)
def test_no_statement_can_pass_a_key_on_without_a_later_epoch(database: Database, change: str, refusal: str) -> None:
    claim = claimed(database, known_key(database), "run-1")

    with pytest.raises(TransitionIllegal, match=refusal):
        database.execute(f"UPDATE kfm.keys SET {change}")

    assert (row_of_key(database, claim.key)["owner"], row_of_key(database, claim.key)["epoch"]) == ("run-1", 1)


def test_no_statement_can_make_an_owner_without_a_lease(database: Database) -> None:
    known_key(database)
    with pytest.raises(Exception, match="a_lease_has_an_owner"):
        database.execute("UPDATE kfm.keys SET owner = 'run-1', epoch = epoch + 1")


def test_a_key_released_between_refusal_and_reason_is_busy(database: Database) -> None:
    key = known_key(database)
    with pytest.raises(KeyBusy, match="another run has just released it"):
        raise Claims(database, "run-2", 60)._refusal(key)
