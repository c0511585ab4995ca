"""The write-ahead log: the database itself refuses every transition the design does not name (I4, I5)."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise, product
from threading import Barrier

import pytest

from kfm_pipelines.errors import Fenced, KfmError, Terminal
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.state.database import Database, TransitionIllegal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.wal import (
    Outcome,
    Step,
    Transition,
    append,
    entry_of,
    last_entries_of_run,
    last_entry,
)
from kfm_pipelines_tests.fixtures.runs.keys import claimed, known_key, new_database

LONGEST = (
    Step.BEGIN,
    Step.COMPUTE,
    Step.MASK,
    Step.VALIDATE,
    Step.STAGE_ATOMIC,
    Step.PUBLISH,
    Step.COMMIT,
)
LEGAL = {
    ("", Step.BEGIN),
    *pairwise(LONGEST),
    (Step.BEGIN, Step.SKIP),
    (Step.COMPUTE, Step.SKIP),
    (Step.STAGE_ATOMIC, Step.SKIP),
    *((before, Step.FAIL) for before in LONGEST[:5]),
}
# A publish intent must come true; only who comes after, and finds that it cannot, may give it up.
LEGAL_FOR_A_SUCCESSOR = {(Step.PUBLISH, Step.COMMIT), *((before, Step.FAIL) for before in LONGEST[:6])}
# A way to every place a transaction can be at.
WAYS: dict[str, tuple[Step, ...]] = {
    "": (),
    **{step: LONGEST[: place + 1] for place, step in enumerate(LONGEST)},
    Step.SKIP: (Step.BEGIN, Step.SKIP),
    Step.FAIL: (Step.BEGIN, Step.FAIL),
}
ILLEGAL = [(before, step) for before, step in product(WAYS, Step) if (before, step) not in LEGAL]
OPEN = LONGEST[:6]

HOURS = count()


@pytest.fixture(scope="module")
def database(stack: Stack, site_template: str) -> Iterator[Database]:
    """One for all tests here, because they are many and each takes a key of its own."""
    with new_database(stack, site_template) as opened:
        yield opened


@pytest.fixture
def key(database: Database) -> str:
    return known_key(database, next(HOURS))


def write(database: Database, claim: Claim, *steps: Step, txn: int | None = None) -> None:
    for step in steps:
        with database.transaction() as connection:
            append(connection, [Transition(claim, step, txn=txn)])


def steps_of(database: Database, key: str) -> list[Step]:
    rows = database.fetch("SELECT step FROM kfm.wal WHERE key = %(key)s ORDER BY id", {"key": key})
    return [Step(row["step"]) for row in rows]


def test_the_moves_in_the_database_are_the_ones_of_the_design(database: Database) -> None:
    rows = database.fetch("SELECT previous, next FROM kfm.wal_moves")
    assert {(row["previous"], row["next"]) for row in rows} == LEGAL | LEGAL_FOR_A_SUCCESSOR


@pytest.mark.parametrize(("before", "step"), sorted(LEGAL))
def test_every_move_of_the_design_is_taken(database: Database, key: str, before: str, step: Step) -> None:
    claim = claimed(database, key)
    write(database, claim, *WAYS[before], step)
    assert steps_of(database, claim.key) == [*WAYS[before], step]


@pytest.mark.parametrize(("before", "step"), ILLEGAL)
def test_every_other_move_is_refused(database: Database, key: str, before: str, step: Step) -> None:
    claim = claimed(database, key)
    write(database, claim, *WAYS[before])

    with pytest.raises(Terminal):
        write(database, claim, step)

    assert steps_of(database, claim.key) == [*WAYS[before]]


@pytest.mark.parametrize("statement", [
    "UPDATE kfm.wal SET detail = '{\"forged\": true}'",
    "UPDATE kfm.wal SET step = 'compute'",
    "DELETE FROM kfm.wal",
    "TRUNCATE kfm.wal",
    "TRUNCATE kfm.keys CASCADE",
])  # fmt: skip
def test_what_is_written_stays(database: Database, key: str, statement: str) -> None:
    claim = claimed(database, key)
    write(database, claim, Step.BEGIN)

    with pytest.raises(TransitionIllegal, match="append-only"):
        database.execute(statement)

    assert steps_of(database, claim.key) == [Step.BEGIN]


@pytest.mark.parametrize("step", Step)
def test_a_stale_epoch_is_fenced_whatever_it_wants_to_write(database: Database, key: str, step: Step) -> None:
    stalled = claimed(database, key)
    before = next(way for way in WAYS.values() if (way[-1] if way else "", step) in LEGAL)
    write(database, stalled, *before)
    claimed(database, key)  # the same run starts again: a later epoch

    with pytest.raises(Fenced, match=f"held at epoch {stalled.epoch + 1}, not {stalled.epoch}"):
        write(database, stalled, step)


def test_an_epoch_nobody_holds_yet_is_fenced_too(database: Database, key: str) -> None:
    claim = claimed(database, key)
    with pytest.raises(Fenced):
        write(database, Claim(claim.key, claim.epoch + 1, 1, claim.owner), Step.BEGIN)


@pytest.mark.parametrize("place", OPEN)
def test_a_second_transaction_waits_for_the_end_of_the_first(database: Database, key: str, place: Step) -> None:
    write(database, claimed(database, key), *WAYS[place])

    with pytest.raises(TransitionIllegal, match=f"has a transaction open at {place}$"):
        write(database, claimed(database, key), Step.BEGIN)


@pytest.mark.parametrize("end", [Step.COMMIT, Step.SKIP, Step.FAIL])
def test_after_the_end_of_one_transaction_the_next_may_begin(database: Database, key: str, end: Step) -> None:
    write(database, claimed(database, key), *WAYS[end])
    write(database, claimed(database, key), Step.BEGIN)
    assert steps_of(database, key) == [*WAYS[end], Step.BEGIN]


@pytest.mark.parametrize(("before", "step"), sorted((LEGAL | LEGAL_FOR_A_SUCCESSOR) - {("", Step.BEGIN)}))
def test_a_successor_may_only_end_the_transaction_of_its_predecessor(
    database: Database, key: str, before: str, step: Step
) -> None:
    predecessor = claimed(database, key)
    write(database, predecessor, *WAYS[before])
    successor = claimed(database, key)

    if (before, step) in LEGAL_FOR_A_SUCCESSOR:
        write(database, successor, step, txn=predecessor.epoch)
        assert steps_of(database, key)[-1] is step
    else:
        with pytest.raises(TransitionIllegal, match=f"may not write {step} of transaction {predecessor.epoch}$"):
            write(database, successor, step, txn=predecessor.epoch)


def test_a_transaction_is_begun_only_under_the_epoch_that_names_it(database: Database, key: str) -> None:
    claimed(database, key)
    claim = claimed(database, key)
    for txn in (claim.epoch - 1, claim.epoch + 1):
        with pytest.raises(TransitionIllegal, match="may not write begin of transaction"):
            write(database, claim, Step.BEGIN, txn=txn)


def test_of_many_writers_of_one_step_one_succeeds(database: Database, key: str) -> None:
    claim = claimed(database, key)

    together = Barrier(6)

    def begin() -> bool:
        try:
            with database.transaction() as connection:
                together.wait(timeout=20)
                append(connection, [Transition(claim, Step.BEGIN)])
        except KfmError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(lambda _: begin(), range(6))) == 1
    assert steps_of(database, claim.key) == [Step.BEGIN]


def test_a_takeover_waits_for_a_transition_under_way(database: Database, key: str) -> None:
    writer = claimed(database, key)
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            append(connection, [Transition(writer, Step.BEGIN)])
            takeover = pool.submit(claimed, database, key)
            time.sleep(0.3)
            assert not takeover.done()
        assert takeover.result(timeout=10).epoch == writer.epoch + 1


@pytest.mark.parametrize(
    ("end", "outcome"),
    [(Step.COMMIT, Outcome.APPLIED), (Step.SKIP, Outcome.SKIPPED), (Step.FAIL, Outcome.FAILED)],
)
def test_the_last_step_gives_the_outcome(database: Database, key: str, end: Step, outcome: Outcome) -> None:
    claim = claimed(database, key)
    write(database, claim, *WAYS[end])
    rows = database.fetch("SELECT outcome FROM kfm.wal WHERE key = %(key)s ORDER BY id", {"key": key})
    assert [row["outcome"] for row in rows] == [None] * (len(rows) - 1) + [outcome]


def test_an_outcome_cannot_be_claimed_for_another_step(database: Database, key: str) -> None:
    claim = claimed(database, key)
    with pytest.raises(Terminal, match="cannot insert a non-DEFAULT value into column"):
        database.execute(
            "INSERT INTO kfm.wal (key, txn, epoch, step, outcome, run_id) "
            "VALUES (%(key)s, %(epoch)s, %(epoch)s, 'begin', 'APPLIED', 'run-1')",
            {"key": claim.key, "epoch": claim.epoch},
        )


def test_entries_are_found_by_key_by_step_and_by_run(database: Database) -> None:
    one, other = (claimed(database, known_key(database, next(HOURS))) for _ in range(2))
    write(database, one, Step.BEGIN, Step.COMPUTE)
    write(database, other, Step.BEGIN)

    with database.transaction() as connection:
        last = last_entry(connection, one.key)
        begun = entry_of(connection, one.key, one.epoch, Step.BEGIN)
        masked = entry_of(connection, one.key, one.epoch, Step.MASK)
        nothing = last_entry(connection, "a:b:none:d:e")
    assert last is not None
    assert last.step is Step.COMPUTE
    assert begun is not None
    assert (begun.txn, begun.epoch, begun.run_id, begun.detail) == (one.epoch, one.epoch, "run-1", {})
    assert masked is None
    assert nothing is None
    ends = last_entries_of_run(database, "run-1", [one.key, other.key])
    assert {key: entry.step for key, entry in ends.items()} == {one.key: Step.COMPUTE, other.key: Step.BEGIN}
    assert last_entries_of_run(database, "run-2", [one.key]) == {}
