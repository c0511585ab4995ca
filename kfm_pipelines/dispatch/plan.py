"""Decides which run comes next: due keys grouped into runs, free capacity, and fairness between datasets.

Dagster's run queue enforces the limits of pools and tags itself. Capacity counted here keeps the dispatcher from
requesting runs that could only wait there in place of runs that could start.
"""

import hashlib
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import dagster as dg

from kfm_pipelines.declarations import Concurrency
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.dispatch.tables import DueKey, RecentDispatch
from kfm_pipelines.orchestration.dagster_internals import ACTIVE_RUN_STATUSES
from kfm_pipelines.orchestration.names import limit_tags, pool_of
from kfm_pipelines.orchestration.tags import RUN_LIMIT_TAG_PREFIX

# A key that keeps failing together with others may be the cause: from this attempt on it runs alone.
ALONE_AFTER_ATTEMPTS = 3
# One of so many runs in a row is for keys that are not urgent, if any are due.
NON_URGENT_INTERVAL = 4
# How many dispatches are remembered: enough for each of many datasets to appear.
HISTORY_LENGTH = 200

# A run over fewer keys costs more for its start than for them.
MIN_SHARE = 20
# Runs that wait in Dagster's queue, so that the next one starts when a run ends and not seconds later.
RUNS_AHEAD = 1

LimitKey = tuple[str, str]  # ("pool", its name), or the name and value of a tag


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run over keys whose partitions are contiguous."""

    dataset: str
    keys: tuple[DueKey, ...]

    @property
    def run_key(self) -> str:
        parts = [key.run_key for key in self.keys]
        if len(parts) == 1:
            return parts[0]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return f"{self.dataset}#{len(parts)}#{digest}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.key for key in self.keys)

    @property
    def urgent(self) -> bool:
        return any(key.urgent for key in self.keys)


def share_of(due: int, slots: int, batch_size: int) -> int:
    """Returns how many of the due keys a run takes, so that every free slot gets a share, but no tiny one."""
    return min(batch_size, max(MIN_SHARE, math.ceil(due / max(slots, 1))))


def plan_runs(
    dataset: str, due: Sequence[DueKey], places: Mapping[str, int], batch_size: int, concurrency: Concurrency
) -> list[PlannedRun]:
    """Returns the fewest runs of at most `batch_size` keys, starting with the run of the first due key. `places` are
    those of the partitions.

    Urgent keys share no run with others: they would wait for them, and the others would count as urgent. Nor do keys
    under different limits, because a run counts towards only one.
    """
    rank = {key.key: place for place, key in enumerate(due)}
    alike: dict[object, list[DueKey]] = defaultdict(list)
    for key in due:
        limit = concurrency.limit_of(key.key)
        alone = key.key if key.attempts >= ALONE_AFTER_ATTEMPTS else None
        alike[alone, key.urgent, limit.prefix if limit else None].append(key)
    ranges = [keys for group in alike.values() for keys in _contiguous_ranges(group, places, batch_size)]
    runs = [PlannedRun(dataset, keys) for keys in ranges]
    return sorted(runs, key=lambda run: min(rank[name] for name in run.names))


def _contiguous_ranges(
    keys: Iterable[DueKey], places: Mapping[str, int], batch_size: int
) -> Iterable[tuple[DueKey, ...]]:
    ordered = sorted(keys, key=lambda key: places[key.key])
    current = ordered[:1]
    for before, key in pairwise(ordered):
        if places[key.key] != places[before.key] + 1 or len(current) == batch_size:
            yield tuple(current)
            current = []
        current.append(key)
    if current:
        yield tuple(current)


class RunCapacity:
    """Free slots for runs, and what is in use of limited pools and tags."""

    def __init__(self, datasets: Datasets, slots: int, *, queues: bool = False) -> None:
        self._datasets = datasets
        self._queues = queues  # whether runs can wait in a queue
        self._in_use: Counter[LimitKey] = Counter()
        self.slots = slots

    @classmethod
    def beside_active_runs(cls, instance: dg.DagsterInstance, datasets: Datasets) -> Self:
        """One slot, less what runs in progress use: no run queue counts them for a process that executes runs."""
        capacity = cls(datasets, slots=1)
        for run in instance.get_runs(dg.RunsFilter(statuses=ACTIVE_RUN_STATUSES)):
            capacity.count_run(run)
        return capacity

    def fits(self, run: PlannedRun) -> bool:
        limits = _limits(self._datasets[run.dataset], run.names)
        has_place = self.slots > 0 or (self._queues and self._may_wait(run))
        return has_place and all(self._in_use[limit] < at_most for limit, at_most in limits.items())

    def _may_wait(self, run: PlannedRun) -> bool:
        """A small run does not wait in the queue, because it may be larger when a slot is free. An urgent one overtakes
        a run that waits there."""
        if run.urgent:
            return -2 * RUNS_AHEAD < self.slots < 0
        return len(run.keys) >= MIN_SHARE and self.slots > -RUNS_AHEAD

    def reserve(self, dataset: str, keys: Sequence[str], *, slots: int = 1) -> None:
        """Takes a slot for a run over these keys; a worker's run needs none. A dataset that is no longer declared has
        no limits."""
        self.slots -= slots
        if dataset in self._datasets:
            self._in_use.update(_limits(self._datasets[dataset], keys).keys())

    def count_run(self, run: dg.DagsterRun) -> None:
        """Counts the pools and tags of a run in progress that uses no slot, such as one of a backfill."""
        pools = run.run_op_concurrency.all_pools if run.run_op_concurrency else None
        self._in_use.update({("pool", pool) for pool in pools or ()})
        self._in_use.update(
            {(name, value) for name, value in run.tags.items() if name.startswith(RUN_LIMIT_TAG_PREFIX)}
        )


def _limits(dataset: Dataset, keys: Sequence[str]) -> dict[LimitKey, int]:
    pool = pool_of(dataset)
    serial = {("pool", pool): 1} if pool else {}
    tags = limit_tags(dataset, keys)
    return {**serial, **{(name, value): int(name.removeprefix(RUN_LIMIT_TAG_PREFIX)) for name, value in tags.items()}}


class FairScheduler:
    """Chooses urgent runs first, but never only those, and no dataset twice while another waits.

    The history, latest first, comes from the database, so that a new process continues where the last one stopped.
    """

    def __init__(self, history: Iterable[RecentDispatch]) -> None:
        self._history = deque(history, maxlen=HISTORY_LENGTH)

    def choose_next(self, runs: Iterable[PlannedRun]) -> PlannedRun | None:
        """Returns the next run; those of one dataset keep the order in which they are given."""
        urgent: list[PlannedRun] = []
        others: list[PlannedRun] = []
        for run in runs:
            (urgent if run.urgent else others).append(run)
        latest = [*self._history][: NON_URGENT_INTERVAL - 1]
        others_next = len(latest) == NON_URGENT_INTERVAL - 1 and all(one.urgent for one in latest)
        chosen = others if others and (not urgent or others_next) else urgent
        return max(chosen, key=self._dispatches_since, default=None)

    def record_run(self, run: PlannedRun) -> None:
        self._history.appendleft(RecentDispatch(run.dataset, run.urgent))

    def sort_datasets(self, datasets: Iterable[Dataset]) -> list[Dataset]:
        """Puts first the dataset whose last run is oldest, so that the first ones cannot use up every tick."""
        names = [one.dataset for one in self._history]
        return sorted(datasets, key=lambda one: -names.index(one.dataset) if one.dataset in names else -len(names))

    def _dispatches_since(self, run: PlannedRun) -> int:
        """Returns how long ago its dataset had a run of this kind."""
        mine = RecentDispatch(run.dataset, run.urgent)
        return self._history.index(mine) if mine in self._history else HISTORY_LENGTH
