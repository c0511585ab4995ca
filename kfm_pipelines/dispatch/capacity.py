"""How many more runs may be asked for: in all, of a serial dataset, and over keys with a limited prefix.

Dagster's run queue enforces the last two, by pool and by tag. What is counted here keeps the dispatcher from asking
for runs that could only wait there, in the place of runs that could start.
"""

from collections import Counter
from collections.abc import Sequence

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.dispatch.plan import PlannedRun
from kfm_pipelines.orchestration.names import limit_tags, pool_of
from kfm_pipelines.orchestration.tags import RUN_LIMIT_TAG_PREFIX

# What is limited: a pool by its name, or a tag by name and value.
LimitKey = tuple[str, str]


class RunCapacity:
    """Slots for runs, and who is in them."""

    def __init__(self, datasets: Datasets, slots: int) -> None:
        self._datasets = datasets
        self._in_use: Counter[LimitKey] = Counter()
        self.slots = slots

    def fits(self, run: PlannedRun) -> bool:
        limits = _limits(self._datasets[run.dataset], run.names)
        return self.slots > 0 and all(self._in_use[what] < at_most for what, at_most in limits.items())

    def reserve(self, dataset: str, keys: Sequence[str]) -> None:
        """One slot is for a run over these keys. Nothing else is known of a dataset that is declared no more."""
        self.slots -= 1
        if dataset in self._datasets:
            self._in_use.update(_limits(self._datasets[dataset], keys).keys())

    def count_run(self, run: dg.DagsterRun) -> None:
        """A run under way, whoever asked for it, such as one of a backfill: it takes no slot of ours, but its pool and
        its tag count."""
        pools = run.run_op_concurrency.all_pools if run.run_op_concurrency else None
        self._in_use.update({("pool", pool) for pool in pools or ()})
        self._in_use.update(
            {(name, value) for name, value in run.tags.items() if name.startswith(RUN_LIMIT_TAG_PREFIX)}
        )


def configure_serial_pools(instance: dg.DagsterInstance, datasets: Datasets) -> None:
    """Give each serial dataset's pool its one slot. Dagster would do so when it first meets the pool in its queue, but
    only after it has let every run pass that it met there with it."""
    wanted = {pool for dataset in datasets.values() if (pool := pool_of(dataset))}
    for pool in sorted(wanted - {limit.name for limit in instance.event_log_storage.get_pool_limits()}):
        instance.event_log_storage.set_concurrency_slots(pool, 1)


def _limits(dataset: Dataset, keys: Sequence[str]) -> dict[LimitKey, int]:
    pool = pool_of(dataset)
    tags = limit_tags(dataset, keys)
    serial = {("pool", pool): 1} if pool else {}
    return {**serial, **{(name, value): int(name.removeprefix(RUN_LIMIT_TAG_PREFIX)) for name, value in tags.items()}}
