"""Dispatch: settle the runs that ended, ask again for those that got lost, ask for new ones for what is due.

Nothing is asked for of a dataset that is killed; its keys stay due.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.dispatch.capacity import RunCapacity, configure_serial_pools
from kfm_pipelines.dispatch.fairness import HISTORY_LENGTH, FairScheduler
from kfm_pipelines.dispatch.plan import PlannedRun, plan_runs
from kfm_pipelines.dispatch.tables import (
    Dispatch,
    RetryDelay,
    close_dispatch,
    due_keys,
    open_dispatches,
    postpone_untouched,
    recent_dispatches,
    record_dispatch,
    void_claims,
)
from kfm_pipelines.dispatch.unreported_keys import report_published
from kfm_pipelines.orchestration.dagster_internals import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    RUN_KEY_TAG,
)
from kfm_pipelines.orchestration.names import group_of, limit_tags
from kfm_pipelines.orchestration.tags import DATASET_TAG
from kfm_pipelines.services import Services
from kfm_pipelines.stages.assets.assets import emit_run_abort_if_stopped
from kfm_pipelines.stages.trigger import EVENT_RUN_TAGS
from kfm_pipelines.state import kill_switch

# Dagster creates the runs of a tick right after it; a request still unknown after this long was lost with its tick.
LOST_AFTER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RunRequests:
    """What to ask Dagster for, and how full it is already."""

    runs: tuple[dg.RunRequest, ...]
    keys: int
    open_runs: int
    held_back: int
    stopped: tuple[
        tuple[kill_switch.KilledDataset, int], ...
    ] = ()  # what is killed, with how many keys wait for that to end


def dispatch(instance: dg.DagsterInstance, services: Services) -> RunRequests:
    configure_serial_pools(instance, services.datasets)
    still_open = _drop_killed(instance, services, close_finished_dispatches(instance, services))
    lost = [one for one in still_open if one.dataset in services.datasets and _is_lost(instance, one)]
    requests = [_build_request(services, one.dataset, one.keys, one.run_key) for one in lost]
    room = RunCapacity(services.datasets, services.settings.runs_in_flight)
    for one in still_open:
        room.reserve(one.dataset, one.keys)
    waiting = plan_due_runs(instance, services, limit=services.settings.batch_size * max(room.slots, 1))
    turns = FairScheduler(recent_dispatches(services.database, HISTORY_LENGTH))
    keys = 0
    while run := turns.choose_next(run for run in waiting if room.fits(run)):
        waiting.remove(run)
        if record_dispatch(services.database, run.run_key, run.dataset, run.names):
            room.reserve(run.dataset, run.names)
            turns.record_run(run)
            requests.append(_build_request(services, run.dataset, run.names, run.run_key))
            keys += len(run.keys)
    held_back = sum(len(run.keys) for run in waiting)
    return RunRequests(
        tuple(requests), keys, len(still_open), held_back, tuple(kill_switch.killed_with_due_keys(services.database))
    )


def close_finished_dispatches(instance: dg.DagsterInstance, services: Services) -> list[Dispatch]:
    """Close every dispatch whose run has ended; return those that are still open."""
    still_open = []
    for one in open_dispatches(services.database):
        run = _find_run(instance, one.run_key)
        if run is not None and run.is_finished:
            _close_finished(instance, services, one, run)
        else:
            still_open.append(one)
    return still_open


def _drop_killed(instance: dg.DagsterInstance, services: Services, still_open: Sequence[Dispatch]) -> list[Dispatch]:
    """A lost request of a killed dataset is not made again: it is closed, or it would keep its slot from others."""
    stopped = kill_switch.killed_datasets(services.database)
    lost = [one for one in still_open if one.dataset in stopped and _is_lost(instance, one)]
    for one in lost:
        close_dispatch(services.database, one.run_key)
    return [one for one in still_open if one not in lost]


def _close_finished(instance: dg.DagsterInstance, services: Services, dispatched: Dispatch, run: dg.DagsterRun) -> None:
    if not run.is_success:
        if dispatched.dataset in services.datasets:
            report_published(instance, services, services.datasets[dispatched.dataset], run.run_id, dispatched.keys)
            emit_run_abort_if_stopped(instance, services, services.datasets[dispatched.dataset], run)
        postpone_keys(services, dispatched.dataset, run.run_id, dispatched.keys, dispatched.age_seconds)
    void_claims(services.database, run.run_id, build_retry_delay(services))
    close_dispatch(services.database, dispatched.run_key)


def postpone_keys(services: Services, dataset: str, run_id: str, keys: Sequence[str], age_seconds: float) -> None:
    """Let the keys wait that a failed run, asked for so long ago, said nothing about; unless it took none because
    the dataset was killed, which is no attempt of theirs."""
    if not kill_switch.was_killed_within(services.database, dataset, age_seconds):
        postpone_untouched(services.database, run_id, keys, build_retry_delay(services))


def plan_due_runs(
    instance: dg.DagsterInstance, services: Services, *, limit: int, also_dispatched: bool = False
) -> list[PlannedRun]:
    """The runs that would take what is due, of each dataset in the order of their turn."""
    runs: list[PlannedRun] = []
    stopped = kill_switch.killed_datasets(services.database)
    for dataset in services.datasets.values():
        if dataset.dataset in stopped:
            continue
        prefixes = [one.prefix for one in dataset.concurrency.limits]
        due = due_keys(services.database, dataset.dataset, limit, prefixes=prefixes, also_dispatched=also_dispatched)
        if due:
            partitions = register_partitions(instance, dataset, [key.key for key in due])
            runs += plan_runs(dataset.dataset, due, partitions, services.settings.batch_size, dataset.concurrency)
    return runs


def register_partitions(instance: dg.DagsterInstance, dataset: Dataset, keys: Sequence[str]) -> list[str]:
    """Make every key a partition; new ones sorted and in one statement, so that they follow each other."""
    name = group_of(dataset)
    known = instance.get_dynamic_partitions(name)
    new = sorted(set(keys) - set(known))
    if new:
        instance.add_dynamic_partitions(name, new)
        known = instance.get_dynamic_partitions(name)
    return list(known)


def build_retry_delay(services: Services) -> RetryDelay:
    """The retry policy for keys whose run ended without them; the same that a key meets inside a run."""
    return lambda attempts: services.retries.delay(attempts, services.random)


def run_tags(dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    return {DATASET_TAG: dataset.dataset, "kfm/keys": str(len(keys)), **limit_tags(dataset, keys)}


def range_tags(keys: Sequence[str]) -> dict[str, str]:
    return {ASSET_PARTITION_RANGE_START_TAG: keys[0], ASSET_PARTITION_RANGE_END_TAG: keys[-1]}


def _build_request(services: Services, dataset_name: str, keys: Sequence[str], run_key: str) -> dg.RunRequest:
    dataset = services.datasets[dataset_name]
    tags = {**run_tags(dataset, keys), **EVENT_RUN_TAGS}
    if len(keys) == 1:
        return dg.RunRequest(run_key, job_name=group_of(dataset), partition_key=keys[0], tags=tags)
    return dg.RunRequest(run_key, job_name=group_of(dataset), tags={**tags, **range_tags(keys)})


def _is_lost(instance: dg.DagsterInstance, dispatched: Dispatch) -> bool:
    return dispatched.age_seconds > LOST_AFTER_SECONDS and _find_run(instance, dispatched.run_key) is None


def _find_run(instance: dg.DagsterInstance, run_key: str) -> dg.DagsterRun | None:
    runs = instance.get_runs(dg.RunsFilter(tags={RUN_KEY_TAG: run_key}), limit=1)
    return runs[0] if runs else None
