"""Closes the dispatches of finished runs, repeats lost requests, and requests runs for due keys.

Nothing is requested for a killed dataset; its keys stay due.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.dispatch import tables
from kfm_pipelines.dispatch.partitions import register_partitions
from kfm_pipelines.dispatch.plan import HISTORY_LENGTH, FairScheduler, PlannedRun, RunCapacity, plan_runs, share_of
from kfm_pipelines.inbox.drain import DrainResult
from kfm_pipelines.orchestration import dagster_internals as internals
from kfm_pipelines.orchestration.names import STAGES, asset_key, group_of, limit_tags, pool_of
from kfm_pipelines.orchestration.tags import DATASET_TAG
from kfm_pipelines.services import Services
from kfm_pipelines.stages.assets.assets import emit_run_abort_if_stopped
from kfm_pipelines.stages.trigger import EVENT_RUN_TAGS
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.liveness import MISSING_SECONDS, live_processes, look_at_runs
from kfm_pipelines.state.wal import Outcome, last_entries_of_run

# Dagster creates the runs of a tick right after it; a request still unknown after this long was lost with its tick.
LOST_AFTER_SECONDS = 60
WAITING = (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED)
# A run whose process has not begun after this long never will; a slow start is much shorter.
START_SECONDS = 120
# A run without a live lease this long after the last one expired has stopped, even if its process exists.
STALLED_SECONDS = 5


Chore = Callable[[Services], Sequence[str]]  # returns problems


@dataclass(frozen=True, slots=True)
class Chores:
    """What a tick does besides draining the queues and requesting runs; `definitions.py` lists it. `with_queues` is
    skipped while the queues are unreachable; `gauges` ends the tick."""

    with_queues: tuple[Chore, ...]
    always: tuple[Chore, ...]
    gauges: Callable[..., object]  # (services, *, at_once=False)

    def run_after_drain(self, services: Services, drained: DrainResult) -> list[str]:
        chores = () if drained.unreachable else self.with_queues
        return [problem for chore in chores for problem in chore(services)]

    def run_always(self, services: Services) -> list[str]:
        return [problem for chore in self.always for problem in chore(services)]


@dataclass(frozen=True, slots=True)
class RunRequests:
    """The runs to request from Dagster, and how busy it is already."""

    runs: tuple[dg.RunRequest, ...]
    open_runs: int
    held_back: int
    # Killed datasets, each with the number of its due keys.
    stopped: tuple[tuple[kill_switch.KilledDataset, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OpenDispatch:
    """A dispatch that is not closed, and its run if Dagster has created it."""

    dispatch: tables.Dispatch
    run: dg.DagsterRun | None

    @property
    def is_lost(self) -> bool:
        return self.run is None and self.dispatch.process is None and self.dispatch.age_seconds > LOST_AFTER_SECONDS

    @property
    def is_waiting(self) -> bool:
        """Whether a daemon was asked for its run and has not started it."""
        return self.dispatch.process is None and (self.run is None or self.run.status in WAITING)


def dispatch(instance: dg.DagsterInstance, services: Services, *, deadline: float = math.inf) -> RunRequests:
    """Requests runs over due keys until the monotonic clock reaches the deadline; the next tick goes on."""
    configure_serial_pools(instance, services.datasets)
    still_open = _drop_killed(services, close_finished_dispatches(instance, services))
    lost = [one.dispatch for one in still_open if one.is_lost and one.dispatch.dataset in services.datasets]
    requests = [_build_request(services, one.dataset, one.keys, one.run_key, urgent=one.urgent) for one in lost]
    capacity = RunCapacity(services.datasets, services.settings.runs_in_flight, queues=True)
    for one in still_open:
        capacity.reserve(one.dispatch.dataset, one.dispatch.keys, slots=1 if one.dispatch.process is None else 0)
    scheduler = FairScheduler(tables.recent_dispatches(services.database, HISTORY_LENGTH))
    waiting = plan_due_runs(instance, services, scheduler, slots=capacity.slots, deadline=deadline)
    while run := scheduler.choose_next(run for run in waiting if capacity.fits(run)):
        if time.monotonic() > deadline:
            break
        waiting.remove(run)
        if tables.record_dispatch(services.database, run.run_key, run.dataset, run.names):
            capacity.reserve(run.dataset, run.names)
            scheduler.record_run(run)
            requests.append(_build_request(services, run.dataset, run.names, run.run_key, urgent=run.urgent))
    held_back = sum(len(run.keys) for run in waiting)
    stopped = tuple(kill_switch.killed_with_due_keys(services.database))
    return RunRequests(tuple(requests), len(still_open), held_back, stopped)


def configure_serial_pools(instance: dg.DagsterInstance, datasets: Datasets) -> None:
    """Gives the pool of each serial dataset its one slot before Dagster finds the pool in its queue, because until
    then Dagster lets every run pass."""
    wanted = {pool for dataset in datasets.values() if (pool := pool_of(dataset))}
    for pool in sorted(wanted - {limit.name for limit in instance.event_log_storage.get_pool_limits()}):
        instance.event_log_storage.set_concurrency_slots(pool, 1)


def close_finished_dispatches(instance: dg.DagsterInstance, services: Services) -> list[OpenDispatch]:
    """Closes every dispatch whose run has ended, and releases the keys of stopped runs; returns what is still open."""
    open_dispatches = tables.open_dispatches(services.database)
    runs = _find_runs(instance, [one.run_key for one in open_dispatches])
    alive = live_processes(services.database)
    still_open = []
    for one in open_dispatches:
        run = runs.get(one.run_key)
        if run is not None and run.is_finished:
            _close_finished(instance, services, one, run)
        elif run is None and one.process not in (None, *alive) and one.age_seconds > MISSING_SECONDS:
            tables.close_dispatch(services.database, one.run_key)  # its worker died before it began the run
        else:
            still_open.append(OpenDispatch(one, run))
    started = {one.dispatch.run_key: one.run.run_id for one in still_open if one.run}
    if started:
        tables.release_stalled(services.database, started, services.settings.lease_seconds + STALLED_SECONDS)
    return still_open


def _drop_killed(services: Services, still_open: Sequence[OpenDispatch]) -> list[OpenDispatch]:
    """Closes lost requests of killed datasets instead of repeating them, because they would occupy slots."""
    stopped = kill_switch.killed_datasets(services.database)
    lost = [one for one in still_open if one.dispatch.dataset in stopped and one.is_lost]
    for one in lost:
        tables.close_dispatch(services.database, one.dispatch.run_key)
    return [one for one in still_open if one not in lost]


def _close_finished(
    instance: dg.DagsterInstance, services: Services, dispatched: tables.Dispatch, run: dg.DagsterRun
) -> None:
    if not run.is_success:
        if dispatched.dataset in services.datasets:
            report_published(instance, services, services.datasets[dispatched.dataset], run.run_id, dispatched.keys)
            emit_run_abort_if_stopped(instance, services, services.datasets[dispatched.dataset], run)
        postpone_keys(services, dispatched.dataset, run.run_id, dispatched.keys, dispatched.age_seconds)
    tables.void_claims(services.database, run.run_id, build_retry_delay(services))
    tables.close_dispatch(services.database, dispatched.run_key)


def report_published(
    instance: dg.DagsterInstance, services: Services, dataset: Dataset, run_id: str, keys: Sequence[str]
) -> list[str]:
    """Records a materialization of `publish` for every key that the run published before it could report it."""
    entries = last_entries_of_run(services.database, run_id, keys)
    published = [key for key, entry in entries.items() if entry.outcome is Outcome.APPLIED]
    if not published:
        return []
    of_keys = dg.AssetRecordsFilter(asset_key=asset_key(dataset, "publish"), asset_partitions=published)
    found = instance.fetch_materializations(of_keys, limit=2 * len(published)).records
    reported = {record.partition_key for record in found if record.run_id == run_id}
    unreported = [key for key in published if key not in reported]
    for key in unreported:
        metadata = {"outcome": Outcome.APPLIED.value, "revision": entries[key].detail["revision"], "run": run_id}
        instance.report_runless_asset_event(
            dg.AssetMaterialization(asset_key(dataset, "publish"), partition=key, metadata=metadata)
        )
    return unreported


def reap(instance: dg.DagsterInstance, services: Services, *, at_once: bool = False) -> None:
    """Fails every run whose process is dead or never began, which Dagster's local launcher cannot detect: the run would
    keep its slot for ever. `at_once` is for a start, when no process of an earlier Dagster can still be starting."""
    statuses = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    records = instance.get_run_records(dg.RunsFilter(statuses=statuses))
    ours = [record for record in records if _is_ours(record.dagster_run, services)]
    if not ours:
        return
    run_ids = [record.dagster_run.run_id for record in ours]
    dead = look_at_runs(services.database, run_ids, 0 if at_once else MISSING_SECONDS)
    starting_since = datetime.now(UTC) - timedelta(seconds=0 if at_once else START_SECONDS)
    for record in ours:
        if dead.get(record.dagster_run.run_id, record.update_timestamp < starting_since):
            instance.report_run_failed(
                record.dagster_run, "The process of this run is gone; another run takes over its keys."
            )


def recover(services: Services) -> None:
    """Fails the runs that an earlier Dagster left behind and closes its dispatches, so that work goes on at once. Only
    for when no other Dagster can be running on this database."""
    from kfm_pipelines.orchestration.instance import open_instance  # imports Alembic, which definitions do not need

    with open_instance() as instance:
        reap(instance, services, at_once=True)
        for one in close_finished_dispatches(instance, services):
            if one.run is None and one.dispatch.process is None:
                tables.close_dispatch(services.database, one.dispatch.run_key)


def _is_ours(run: dg.DagsterRun, services: Services) -> bool:
    """Returns whether it is a run of a dataset's job, or one that a backfill started over its assets."""
    selected = run.asset_selection or frozenset()
    return any(
        run.job_name == group_of(dataset) or not selected.isdisjoint(asset_key(dataset, stage) for stage in STAGES)
        for dataset in services.datasets.values()
    )


def postpone_keys(services: Services, dataset: str, run_id: str, keys: Sequence[str], age_seconds: float) -> None:
    """Postpones the keys that a failed run left untouched, unless it did so because the dataset was killed."""
    if not kill_switch.was_killed_within(services.database, dataset, age_seconds):
        tables.postpone_untouched(services.database, run_id, keys, build_retry_delay(services))


def plan_due_runs(
    instance: dg.DagsterInstance,
    services: Services,
    scheduler: FairScheduler,
    *,
    slots: int,
    deadline: float = math.inf,
    taking_over: Sequence[str] = (),
) -> list[PlannedRun]:
    """Returns the runs over all due keys, sized for so many free slots; those of each dataset in order. Datasets that
    are not reached before the deadline come first the next time."""
    runs: list[PlannedRun] = []
    stopped = kill_switch.killed_datasets(services.database)
    batch_size = services.settings.batch_size
    for dataset in scheduler.sort_datasets(services.datasets.values()):
        if dataset.dataset in stopped or time.monotonic() > deadline:
            continue
        prefixes = [one.prefix for one in dataset.concurrency.limits]
        limit = batch_size * max(slots, 1)
        due = tables.due_keys(services.database, dataset.dataset, limit, prefixes=prefixes, taking_over=taking_over)
        if due:
            places = register_partitions(instance, dataset, [key.key for key in due])
            share = share_of(len(due), slots, batch_size)
            runs += plan_runs(dataset.dataset, due, places, share, dataset.concurrency)
    return runs


def build_retry_delay(services: Services) -> tables.RetryDelay:
    """Returns the retry policy for keys whose run ended without them: the same as inside a run."""
    return lambda attempts: services.retries.delay(attempts, services.random)


def run_tags(dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    return {DATASET_TAG: dataset.dataset, "kfm/keys": str(len(keys)), **limit_tags(dataset, keys)}


def range_tags(keys: Sequence[str]) -> dict[str, str]:
    return {internals.ASSET_PARTITION_RANGE_START_TAG: keys[0], internals.ASSET_PARTITION_RANGE_END_TAG: keys[-1]}


def _build_request(
    services: Services, dataset_name: str, keys: Sequence[str], run_key: str, *, urgent: bool
) -> dg.RunRequest:
    dataset = services.datasets[dataset_name]
    tags = {**run_tags(dataset, keys), **EVENT_RUN_TAGS, **({internals.PRIORITY_TAG: "1"} if urgent else {})}
    if len(keys) == 1:
        return dg.RunRequest(run_key, job_name=group_of(dataset), partition_key=keys[0], tags=tags)
    return dg.RunRequest(run_key, job_name=group_of(dataset), tags={**tags, **range_tags(keys)})


def _find_runs(instance: dg.DagsterInstance, run_keys: Sequence[str]) -> dict[str, dg.DagsterRun]:
    if not run_keys:
        return {}
    runs = instance.get_runs(dg.RunsFilter(tags={internals.RUN_KEY_TAG: list(run_keys)}))
    return {run.tags[internals.RUN_KEY_TAG]: run for run in runs}
