"""Keys as Dagster's partitions: registered when there is work for them, retired when there are too many.

Dagster's pages become slow with a hundred thousand partitions. Retiring one removes it from those pages only; the key,
its revisions and its log stay in our tables. New work registers it again.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.dispatch import tables
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.orchestration import dagster_internals as internals
from kfm_pipelines.orchestration.names import group_of
from kfm_pipelines.services import Services

RETIRED_AT_ONCE = 200  # events of these keys wait meanwhile
RUNS_AT_ONCE = 5000
PAGE_SIZE = 500
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
PARTITION_TAGS = (
    internals.PARTITION_NAME_TAG,
    internals.ASSET_PARTITION_RANGE_START_TAG,
    internals.ASSET_PARTITION_RANGE_END_TAG,
)


def register_partitions(instance: dg.DagsterInstance, dataset: Dataset, keys: Sequence[str]) -> Mapping[str, int]:
    """Makes every key a partition; new ones sorted and in one statement, so that they are contiguous. Returns the place
    of each among all partitions."""
    from kfm_pipelines.orchestration.instance import partition_places  # imports Alembic, which definitions do not need

    name = group_of(dataset)
    places = partition_places(instance, name, keys)
    new = sorted(set(keys) - places.keys())
    if not new:
        return places
    instance.add_dynamic_partitions(name, new)
    return partition_places(instance, name, keys)


def retire_partitions(instance: dg.DagsterInstance, services: Services) -> int:
    """Retires the partitions registered longest ago beyond the number to keep, except those of keys with work. Does
    nothing while a backfill is under way, because it names its partitions. Returns how many were retired."""
    if internals.has_active_backfill(instance):
        return 0
    return sum(_retire(instance, services, group_of(dataset)) for dataset in services.datasets.values())


def _retire(instance: dg.DagsterInstance, services: Services, name: str) -> int:
    registered = instance.get_dynamic_partitions(name)
    surplus = registered[: max(0, len(registered) - services.settings.partitions_kept)]
    retired = 0
    for start in range(0, len(surplus), RETIRED_AT_ONCE):
        with tables.lock_idle_keys(services.database, surplus[start : start + RETIRED_AT_ONCE]) as idle:
            for key in idle:
                instance.delete_dynamic_partition(name, key)
        retired += len(idle)
    return retired


def restore_partitions(
    instance: dg.DagsterInstance, services: Services, dataset: Dataset, start: datetime, end: datetime
) -> tuple[int, int]:
    """Registers the keys of the windows that begin in [start, end). Returns how many there are and how many were not
    registered. They are the last to be retired again."""
    keys = tables.keys_between(services.database, dataset.dataset, start, end)
    kept = services.settings.partitions_kept
    if len(keys) > kept:
        raise ReplayRefused(f"{len(keys)} keys are more than the {kept} of KFM_PARTITIONS_KEPT; choose a shorter time")
    before = len(instance.get_dynamic_partitions(group_of(dataset)))
    register_partitions(instance, dataset, keys)
    return len(keys), len(instance.get_dynamic_partitions(group_of(dataset))) - before


def delete_old_runs(instance: dg.DagsterInstance, services: Services) -> int:
    """Deletes runs that ended long ago, except those of a registered partition, which would look as if it had never
    been materialized. Returns how many were deleted."""
    registered = {
        key for dataset in services.datasets.values() for key in instance.get_dynamic_partitions(group_of(dataset))
    }
    ended_before = datetime.now(UTC) - timedelta(days=services.settings.run_days)
    old = (
        run for run in _ended_runs(instance, ended_before) if registered.isdisjoint(map(run.tags.get, PARTITION_TAGS))
    )
    run_ids = [run.run_id for run in islice(old, RUNS_AT_ONCE)]  # a deleted run cannot be a cursor
    for run_id in run_ids:
        instance.delete_run(run_id)
    return len(run_ids)


def _ended_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[dg.DagsterRun]:
    ended = dg.RunsFilter(statuses=FINISHED, updated_before=before)
    page = instance.get_runs(ended, limit=PAGE_SIZE)
    while page:
        yield from page
        page = instance.get_runs(ended, cursor=page[-1].run_id, limit=PAGE_SIZE)
