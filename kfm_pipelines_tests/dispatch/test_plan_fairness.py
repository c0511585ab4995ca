"""Order of runs: urgent ones first, a share for the others, and every dataset in turn."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.dispatch.plan import HISTORY_LENGTH, NON_URGENT_INTERVAL, FairScheduler, PlannedRun
from kfm_pipelines.dispatch.tables import HIGH, DueKey, RecentDispatch
from kfm_pipelines.settings import shipped_path

A, B = "usda/soil", "usgs/streamflow"


def run_of(name: str, *, urgent: bool = False, dataset: str = A) -> PlannedRun:
    return PlannedRun(dataset, (DueKey(name, 0, 0, 0, HIGH if urgent else 1),))


def turn(urgent: bool, dataset: str = A) -> RecentDispatch:
    return RecentDispatch(dataset, urgent)


def order(runs: list[PlannedRun], taken: list[RecentDispatch] | None = None) -> list[str]:
    """Returns all runs in the order in which they are chosen."""
    scheduler, waiting, found = FairScheduler(taken or []), [*runs], []
    while run := scheduler.choose_next(waiting):
        waiting.remove(run)
        scheduler.record_run(run)
        found.append(run.names[0])
    return found


def test_urgent_runs_come_first_and_every_fourth_turn_is_for_the_others() -> None:
    urgent = [run_of(f"u{number}", urgent=True) for number in range(7)]
    others = [run_of(f"o{number}") for number in range(3)]
    assert order([*others, *urgent]) == ["u0", "u1", "u2", "o0", "u3", "u4", "u5", "o1", "u6", "o2"]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([True, True, True], "other"),
        ([True, True, True, True, True], "other"),
        ([True, True], "urgent"),
        ([False, True, True, True], "urgent"),
        ([True, True, False, True], "urgent"),
        ([], "urgent"),
    ],
)
def test_the_share_counts_across_ticks(taken: list[bool], expected: str) -> None:
    runs = [run_of("urgent", urgent=True), run_of("other")]
    first = order(runs, [turn(urgent) for urgent in taken])[0]
    assert first == expected


def test_no_slot_is_kept_free_when_only_one_kind_is_due() -> None:
    assert order([run_of("u", urgent=True)], [turn(True)] * 5) == ["u"]
    assert order([run_of("o")], [turn(False)] * 5) == ["o"]
    assert order([]) == []


@pytest.mark.parametrize("urgent", [True, False])
def test_datasets_alternate_even_with_one_free_slot_at_a_time(urgent: bool) -> None:
    runs = [run_of(f"{dataset}{number}", urgent=urgent, dataset=dataset) for dataset in (A, B) for number in range(2)]
    assert order(runs) == [f"{A}0", f"{B}0", f"{A}1", f"{B}1"]
    assert order(runs, [turn(urgent, A)])[0] == f"{B}0"
    assert order(runs, [turn(not urgent, A)])[0] == f"{A}0"


def test_the_dataset_whose_last_run_is_oldest_is_planned_first() -> None:
    """A tick may not have time for all of them."""
    first, second, third, *_ = load_datasets(shipped_path("resources")).values()
    history = [turn(False, second.dataset), turn(True, first.dataset), turn(True, second.dataset)]
    assert FairScheduler(history).sort_datasets([first, second, third]) == [third, first, second]


@dataclass
class Flood:
    """A queue with one slot and endless urgent keys; each choice is made by a new process from the record."""

    urgent_a_turn: int
    datasets: int
    record: list[RecentDispatch] = field(default_factory=list)
    waiting: list[PlannedRun] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)

    def arrive(self, name: str, *, urgent: bool) -> None:
        dataset = f"d{len(self.since) % self.datasets}"
        self.waiting.append(run_of(name, urgent=urgent, dataset=dataset))
        self.since[name] = len(self.record)

    def choose(self) -> tuple[str, int]:
        """Returns the chosen key and for how many choices it had waited."""
        for number in range(self.urgent_a_turn):
            self.arrive(f"u{len(self.record)}-{number}", urgent=True)
        run = FairScheduler(self.record[:HISTORY_LENGTH]).choose_next(self.waiting)
        assert run is not None
        self.waiting.remove(run)
        self.record.insert(0, RecentDispatch(run.dataset, run.urgent))
        return run.names[0], len(self.record) - self.since[run.names[0]]


@settings(max_examples=30)
@given(
    urgent_a_turn=st.integers(1, 4),
    datasets=st.integers(1, 3),
    arrivals=st.lists(st.integers(0, 80), max_size=12).map(sorted),
)
def test_in_a_flood_of_urgent_keys_every_other_key_is_chosen_soon(
    urgent_a_turn: int, datasets: int, arrivals: list[int]
) -> None:
    flood = Flood(urgent_a_turn, datasets)
    waited: dict[str, int] = {}
    for number in range(80 + NON_URGENT_INTERVAL * (len(arrivals) + 1)):
        for place in [place for place, at in enumerate(arrivals) if at == number]:
            flood.arrive(f"other{place}", urgent=False)
        name, choices = flood.choose()
        waited[name] = choices

    for place in range(len(arrivals)):
        # At worst every other key is chosen before it, one in four times.
        assert waited[f"other{place}"] <= NON_URGENT_INTERVAL * (len(arrivals) + 1)


@settings(max_examples=30)
@given(urgent_a_turn=st.integers(1, 4), others=st.integers(30, 60))
def test_with_enough_of_both_urgent_keys_have_three_quarters(urgent_a_turn: int, others: int) -> None:
    flood = Flood(urgent_a_turn, datasets=2)
    for number in range(others):
        flood.arrive(f"other{number}", urgent=False)
    for _ in range(100):
        flood.choose()
    shares = Counter(one.urgent for one in flood.record)
    assert shares == {True: 75, False: 25}
