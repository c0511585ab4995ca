"""Every due key is in exactly one run over contiguous partitions."""

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.declarations import Concurrency, PrefixLimit
from kfm_pipelines.dispatch.plan import ALONE_AFTER_ATTEMPTS, PlannedRun, plan_runs, share_of
from kfm_pipelines.dispatch.tables import DueKey

PARTITIONS = [f"p{number:02}" for number in range(30)]
DUE = st.lists(
    st.builds(
        DueKey, st.sampled_from(PARTITIONS), st.integers(0, 5), st.integers(0, 3), st.integers(0, 9), st.integers(0, 2)
    ),
    unique_by=lambda key: key.key,
)


def due(*names: str, attempts: int = 0, priority: int = 1) -> list[DueKey]:
    return [DueKey(name, attempts, 0, 0, priority) for name in names]


def planned(keys: list[DueKey], batch_size: int = 200, limits: Sequence[PrefixLimit] = ()) -> list[tuple[str, ...]]:
    concurrency = Concurrency(limits=[*limits])
    places = {name: place for place, name in enumerate(PARTITIONS)}
    return [run.names for run in plan_runs("usgs/streamflow", keys, places, batch_size, concurrency)]


def test_keys_that_follow_each_other_are_one_run() -> None:
    assert planned(due("p03", "p01", "p02")) == [("p01", "p02", "p03")]


def test_a_gap_is_a_border() -> None:
    assert planned(due("p01", "p02", "p04", "p06", "p07")) == [("p01", "p02"), ("p04",), ("p06", "p07")]


def test_the_order_is_that_of_the_partitions_not_of_the_names() -> None:
    keys = due("a", "b", "c")
    [run] = plan_runs("usgs/streamflow", keys, {"x": 0, "c": 1, "a": 2, "b": 3}, 200, Concurrency())
    assert run.names == ("c", "a", "b")


def test_a_run_takes_no_more_than_the_batch_size() -> None:
    runs = planned(due(*PARTITIONS[:7]), batch_size=3)
    assert runs == [tuple(PARTITIONS[0:3]), tuple(PARTITIONS[3:6]), tuple(PARTITIONS[6:7])]


@pytest.mark.parametrize(
    ("keys", "slots", "share"),
    [(240, 4, 60), (241, 4, 61), (5000, 4, 200), (30, 4, 20), (3, 4, 20), (150, 1, 150), (150, 0, 150), (0, 2, 20)],
)
def test_every_free_slot_gets_a_share_but_no_tiny_one(keys: int, slots: int, share: int) -> None:
    assert share_of(keys, slots, batch_size=200) == share
    assert share_of(keys, slots, batch_size=1) == 1


def test_a_key_that_keeps_failing_goes_alone() -> None:
    suspect = due("p02", attempts=ALONE_AFTER_ATTEMPTS)
    assert planned([*due("p01", "p03"), *suspect]) == [("p01",), ("p03",), ("p02",)]
    nearly = due("p02", attempts=ALONE_AFTER_ATTEMPTS - 1)
    assert planned([*due("p01", "p03"), *nearly]) == [("p01", "p02", "p03")]


def test_two_that_keep_failing_do_not_go_together() -> None:
    assert planned(due("p01", "p02", attempts=ALONE_AFTER_ATTEMPTS)) == [("p01",), ("p02",)]


def test_the_run_of_the_first_due_key_comes_first() -> None:
    assert planned(due("p20", "p01", "p02", "p21", "p10")) == [("p20", "p21"), ("p01", "p02"), ("p10",)]


def test_an_urgent_key_shares_no_run_with_others() -> None:
    urgent = due("p02", "p03", priority=2)
    assert planned([*urgent, *due("p01", "p04", "p05")]) == [("p02", "p03"), ("p01",), ("p04", "p05")]


def test_normal_and_low_keys_share_a_run() -> None:
    assert planned([*due("p01", "p03"), *due("p02", priority=0)]) == [("p01", "p02", "p03")]


def test_a_run_ends_where_a_limited_prefix_begins_or_ends() -> None:
    limits = [PrefixLimit(prefix="p1", runs=2), PrefixLimit(prefix="p20", runs=1)]
    keys = due("p08", "p09", "p10", "p11", "p19", "p20", "p21")
    assert planned(keys, limits=limits) == [("p08", "p09"), ("p10", "p11"), ("p19",), ("p20",), ("p21",)]


def test_nothing_due_is_no_run() -> None:
    assert planned([]) == []


@given(keys=DUE, batch_size=st.integers(1, 8))
def test_every_due_key_is_in_exactly_one_run_and_runs_are_few_and_unbroken(keys: list[DueKey], batch_size: int) -> None:
    runs = planned(keys, batch_size)

    assert sorted(name for run in runs for name in run) == sorted(key.key for key in keys)
    suspects = {key.key for key in keys if key.attempts >= ALONE_AFTER_ATTEMPTS}
    urgent = {key.key for key in keys if key.priority == 2}
    for run in runs:
        places = [PARTITIONS.index(name) for name in run]
        assert all(after == before + 1 for before, after in pairwise(places))
        assert len(run) <= (1 if suspects & {*run} else batch_size)
        assert urgent.issuperset(run) or urgent.isdisjoint(run)
    assert len(runs) == len(suspects) + sum(
        math.ceil(length / batch_size)
        for alike in (urgent - suspects, {key.key for key in keys} - urgent - suspects)
        for length in stretches(alike)
    )
    order = [key.key for key in keys]
    firsts = [min(order.index(name) for name in run) for run in runs]
    assert firsts == sorted(firsts)


def stretches(names: set[str]) -> list[int]:
    """How many of these follow each other, for each place where they do."""
    places = sorted(PARTITIONS.index(name) for name in names)
    return [len([*group]) for _, group in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])]


@pytest.mark.parametrize(
    "other",
    [
        (DueKey("k1", 0, 0, 1, 1), DueKey("k2", 0, 0, 0, 1)),
        (DueKey("k1", 0, 1, 0, 1), DueKey("k2", 0, 0, 0, 1)),
        (DueKey("k1", 0, 0, 0, 1), DueKey("k3", 0, 0, 0, 1)),
        (DueKey("k1", 0, 0, 0, 1), DueKey("k2", 0, 0, 0, 1), DueKey("k3", 0, 0, 0, 1)),
        (DueKey("k1", 0, 0, 0, 1),),
        (DueKey("k2", 0, 0, 0, 1),),
    ],
)
def test_another_dispatch_has_another_run_key(other: tuple[DueKey, ...]) -> None:
    one = PlannedRun("usgs/streamflow", (DueKey("k1", 0, 0, 0, 1), DueKey("k2", 0, 0, 0, 1)))
    assert one.run_key == PlannedRun("usgs/streamflow", one.keys).run_key
    assert one.run_key != PlannedRun("usgs/streamflow", other).run_key


def test_the_run_key_of_one_key_carries_revision_and_attempt() -> None:
    run = PlannedRun("usgs/streamflow", (DueKey("k", attempts=2, revision=4, dispatches=6, priority=1),))
    assert run.run_key == "k#4#7"
