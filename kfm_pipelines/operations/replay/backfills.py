"""Batches of replays, carried out: as backfills by Dagster's daemon, or as runs in this process; and the sensor that
carries replays on."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.dispatch.dispatch import range_tags, reap, register_partitions, run_tags
from kfm_pipelines.dispatch.plan import PlannedRun, RunCapacity, plan_runs
from kfm_pipelines.dispatch.tables import DueKey
from kfm_pipelines.errors import KfmError, ReplayRefused
from kfm_pipelines.operations.replay.advance import BatchStatus, ReplayStep, advance, take_step
from kfm_pipelines.operations.replay.batches import ReplayBatch
from kfm_pipelines.operations.replay.keys import keys_of
from kfm_pipelines.orchestration.dagster_internals import (
    ACTIVE_RUN_STATUSES,
    BULK_ACTION_TERMINAL_STATUSES,
    BaseAssetGraph,
    BulkActionStatus,
    PartitionBackfill,
    are_daemons_healthy,
    get_current_timestamp,
)
from kfm_pipelines.orchestration.names import STAGES, asset_key, group_of
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.tags import BACKFILL_TAG, DATASET_TAG, REPLAY_TAG
from kfm_pipelines.services import Services
from kfm_pipelines.state import replays
from kfm_pipelines.telemetry.logs.configure import error_fields

log = logging.getLogger(__name__)

DAEMONS = ("BACKFILL", "SENSOR")
DAEMON_HEARTBEAT_SECONDS = 90  # beyond the half minute between two signs of life
MAX_SLEEP_SECONDS = 5.0
LOCK_TIMEOUT_SECONDS = 15.0  # a sensor's tick holds a replay for a moment only
NO_DAEMON = (
    "no Dagster daemon is at work, so nobody would carry out its backfills; start one with `kfm up`, or carry it out "
    "in this process with --here"
)


class DaemonBatchRunner:
    """Each batch is a backfill of the dataset's whole group of assets, as somebody in the UI would launch it."""

    def __init__(self, instance: dg.DagsterInstance, asset_graph: Callable[[], BaseAssetGraph[Any]]) -> None:
        self.instance = instance
        self._asset_graph = asset_graph

    def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
        if self.instance.get_backfill(batch.backfill) is not None:
            return
        register_partitions(self.instance, dataset, batch.keys)
        stages = (*STAGES, *(("canary",) if dataset.canary else ()))
        backfill = PartitionBackfill.from_asset_partitions(
            backfill_id=batch.backfill,
            asset_graph=self._asset_graph(),
            partition_names=list(batch.keys),
            asset_selection=[asset_key(dataset, stage) for stage in stages],
            backfill_timestamp=get_current_timestamp(),
            tags=_batch_tags(dataset, batch),
            dynamic_partitions_store=self.instance,
            all_partitions=False,
            title=f"replay {batch.replay}, batch {batch.batch}",
            description=None,
            run_config=None,
        )
        self.instance.add_backfill(backfill)

    def status(self, batch: ReplayBatch) -> BatchStatus:
        return _backfill_status(self.instance, batch) or BatchStatus.UNKNOWN

    def cancel(self, batch: ReplayBatch) -> None:
        backfill = self.instance.get_backfill(batch.backfill)
        if backfill is not None and backfill.status not in BULK_ACTION_TERMINAL_STATUSES:
            self.instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELING))  # type: ignore[no-untyped-call]


class LocalBatchRunner:
    """Each batch is a few runs of the dataset's job, here and now. One that is a backfill already stays one, as long as
    there is a daemon that would carry it out."""

    def __init__(self, instance: dg.DagsterInstance, services: Services, definitions: dg.Definitions) -> None:
        self._instance = instance
        self._services = services
        self._definitions = definitions
        self._finished_backfills: set[str] = set()  # what this process has carried out

    def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
        if batch.backfill in self._finished_backfills or not self._take_over(batch):
            return
        for run in self._plan_runs(dataset, batch):
            if not self._wait_for_capacity(batch, run):
                return
            # In the main thread Dagster would take an interrupt for its own, and the replay would go on.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self._execute, dataset, batch, run).result()
        self._finished_backfills.add(batch.backfill)

    def _take_over(self, batch: ReplayBatch) -> bool:
        """Whether it is for this process to do. What a daemon left behind is called off first, or the next one would do
        it too."""
        backfill = self._instance.get_backfill(batch.backfill)
        if backfill is None:
            return True
        if backfill.status in BULK_ACTION_TERMINAL_STATUSES or is_daemon_running(self._instance):
            return False
        self._instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELED))  # type: ignore[no-untyped-call]
        return True

    def _execute(self, dataset: Dataset, batch: ReplayBatch, run: PlannedRun) -> None:
        tags = {**run_tags(dataset, run.names), **range_tags(run.names), **_batch_tags(dataset, batch)}
        self._definitions.resolve_job_def(group_of(dataset)).execute_in_process(
            instance=self._instance, tags={**tags, BACKFILL_TAG: batch.backfill}, raise_on_error=False
        )

    def _wait_for_capacity(self, batch: ReplayBatch, run: PlannedRun) -> bool:
        """False when the replay is not carried on any more. A run that nobody carries out would stand in the way for
        ever, so whoever waits for it looks for such."""
        while replays.read(self._services.database, batch.replay).state == "running":
            reap(self._instance, self._services)
            if self._read_capacity().fits(run):
                return True
            time.sleep(1.0)
        return False

    def status(self, batch: ReplayBatch) -> BatchStatus:
        """What `ask` does is done when it returns, unless the replay was not carried on."""
        if batch.backfill in self._finished_backfills:
            return BatchStatus.FINISHED
        found = _backfill_status(self._instance, batch)
        abandoned = found is BatchStatus.RUNNING and not is_daemon_running(self._instance)
        return BatchStatus.UNKNOWN if found is None or abandoned else found

    def cancel(self, batch: ReplayBatch) -> None:
        """Whoever carries it out notices after the batch."""

    def _plan_runs(self, dataset: Dataset, batch: ReplayBatch) -> list[PlannedRun]:
        """Over what has no outcome yet: the batch may have been begun before."""
        asked = keys_of(self._services.database, batch.replay, states=("asked",))
        left = [DueKey(one.key, one.attempts, 0, 0, 0) for one in asked if one.batch == batch.batch]
        partitions = register_partitions(self._instance, dataset, [one.key for one in left])
        return plan_runs(dataset.dataset, left, partitions, self._services.settings.batch_size, dataset.concurrency)

    def _read_capacity(self) -> RunCapacity:
        room = RunCapacity(self._services.datasets, slots=1)
        for run in self._instance.get_runs(dg.RunsFilter(statuses=ACTIVE_RUN_STATUSES)):
            room.count_run(run)
        return room


def run_in_process(
    services: Services, replay: str, runner: LocalBatchRunner, on_step: Callable[[ReplayStep], None] = lambda _: None
) -> ReplayStep:
    """Carry it on in this process until it is over or paused; nobody else does meanwhile."""
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        with replays.lock_replay(services.database, replay) as mine:
            if mine:
                return _run_steps(services, replay, runner, on_step)
        if time.monotonic() > deadline:
            raise ReplayRefused(f"another process carries out replay {replay}; `kfm replay status {replay}` shows it")
        time.sleep(0.5)


def _run_steps(
    services: Services, replay: str, runner: LocalBatchRunner, on_step: Callable[[ReplayStep], None]
) -> ReplayStep:
    while not (step := take_step(services, replay, runner)).is_last:
        on_step(step)
        time.sleep(min(step.wait_seconds, MAX_SLEEP_SECONDS))
    on_step(step)
    return step


def is_daemon_running(instance: dg.DagsterInstance) -> bool:
    """Dagster itself takes a daemon for alive until half an hour after its last sign of life. That some sensor of it
    fails is no reason: others are carried out."""
    return are_daemons_healthy(instance, DAEMONS, DAEMON_HEARTBEAT_SECONDS)


def refuse_without_daemon(instance: dg.DagsterInstance) -> None:
    if not is_daemon_running(instance):
        raise ReplayRefused(NO_DAEMON)


def replay_sensor() -> dg.SensorDefinition:
    @dg.sensor(
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Carries on the replays under way: asks for the next batch as a backfill when the last is over.",
    )
    def kfm_replays(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SkipReason:
        repository = context.repository_def
        assert repository is not None  # noqa: S101 - the daemon always gives it
        return dg.SkipReason(tick(DaemonBatchRunner(context.instance, lambda: repository.asset_graph), services.open()))

    return kfm_replays


def tick(runner: DaemonBatchRunner, services: Services) -> str:
    """One step of every replay under way, and what came of it; what is wrong with one holds up no other."""
    try:
        going = replays.active_replays(services.database)
    except KfmError as error:
        return str(error)
    return "; ".join(_advance_replay(services, one.id, runner) for one in going) or "no replay is under way"


def _advance_replay(services: Services, replay: str, runner: DaemonBatchRunner) -> str:
    try:
        step = advance(services, replay, runner)
    except KfmError as error:
        return f"replay {replay}: {error}"
    except Exception as error:  # noqa: BLE001 - what it says may quote data
        log.error("replay %s could not be carried on", replay, extra={"replay_id": replay, **error_fields(error)})
        return f"replay {replay}: {type(error).__name__}"
    if step is None:
        return f"replay {replay}: another process is at it"
    return f"replay {replay} is {step.replay.state}" + (f": {step.replay.note}" if step.replay.note else "")


def _backfill_status(instance: dg.DagsterInstance, batch: ReplayBatch) -> BatchStatus | None:
    """By its backfill; None when it is none."""
    backfill = instance.get_backfill(batch.backfill)
    if backfill is None:
        return None
    if backfill.status is BulkActionStatus.CANCELED:
        return BatchStatus.CANCELLED
    return BatchStatus.FINISHED if backfill.status in BULK_ACTION_TERMINAL_STATUSES else BatchStatus.RUNNING


def _batch_tags(dataset: Dataset, batch: ReplayBatch) -> dict[str, str]:
    return {REPLAY_TAG: batch.replay, DATASET_TAG: dataset.dataset}
