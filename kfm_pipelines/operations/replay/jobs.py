"""Runs batches of replays, as backfills or in this process, and the sensor that advances replays."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.dispatch.dispatch import range_tags, reap, run_tags
from kfm_pipelines.dispatch.partitions import register_partitions
from kfm_pipelines.dispatch.plan import PlannedRun, RunCapacity, plan_runs
from kfm_pipelines.dispatch.sensor import TICK_SECONDS
from kfm_pipelines.dispatch.tables import DueKey
from kfm_pipelines.errors import KfmError, ReplayRefused
from kfm_pipelines.operations.replay.advance import BatchRunner, BatchStatus, ReplayStep, advance, take_step
from kfm_pipelines.operations.replay.tables import ReplayBatch, keys_of
from kfm_pipelines.orchestration import dagster_internals as internals
from kfm_pipelines.orchestration.names import STAGES, asset_key, group_of
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.tags import BACKFILL_TAG, DATASET_TAG, REPLAY_TAG
from kfm_pipelines.services import Services
from kfm_pipelines.state import replays
from kfm_pipelines.telemetry.logs.configure import error_fields

log = logging.getLogger(__name__)

Sleep = Callable[[float], None]

DAEMONS = ("BACKFILL", "SENSOR")
DAEMON_HEARTBEAT_SECONDS = 90  # heartbeats come every 30 s
MAX_SLEEP_SECONDS = 5.0
LOCK_POLL_SECONDS = 0.5
LOCK_ATTEMPTS = 30  # a sensor tick holds a replay only for a moment


@dataclass(frozen=True, slots=True)
class DaemonBatchRunner:
    """Runs each batch as a backfill of all assets of the dataset, as a user would launch it in the UI."""

    instance: dg.DagsterInstance
    asset_graph: Callable[[], internals.BaseAssetGraph[Any]]

    def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
        if self.instance.get_backfill(batch.backfill) is not None:
            return
        register_partitions(self.instance, dataset, batch.keys)
        stages = (*STAGES, *(("canary",) if dataset.canary else ()))
        backfill = internals.PartitionBackfill.from_asset_partitions(
            backfill_id=batch.backfill,
            asset_graph=self.asset_graph(),
            partition_names=list(batch.keys),
            asset_selection=[asset_key(dataset, stage) for stage in stages],
            backfill_timestamp=internals.get_current_timestamp(),
            tags=_batch_tags(dataset, batch),
            dynamic_partitions_store=self.instance,
            all_partitions=False,
            title=f"replay {batch.replay}, batch {batch.batch}",
            description=None,
            run_config=None,
        )
        self.instance.add_backfill(backfill)

    def status(self, batch: ReplayBatch) -> BatchStatus:
        return _backfill_status(self.instance, batch)

    def cancel(self, batch: ReplayBatch) -> None:
        backfill = self.instance.get_backfill(batch.backfill)
        if backfill is not None and backfill.status not in internals.BULK_ACTION_TERMINAL_STATUSES:
            self.instance.update_backfill(backfill.with_status(internals.BulkActionStatus.CANCELING))  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class LocalBatchRunner:
    """Runs each batch in this process; one that is a backfill stays so while a daemon can run it."""

    instance: dg.DagsterInstance
    services: Services
    definitions: dg.Definitions
    sleep: Sleep = time.sleep
    _finished_backfills: set[str] = field(default_factory=set)  # by this process

    def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
        if batch.backfill in self._finished_backfills or not self._take_over(batch):
            return
        for run in self._plan_runs(dataset, batch):
            if not self._wait_for_capacity(batch, run):
                return
            # In the main thread Dagster would handle an interrupt itself and the replay would continue.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self._execute, dataset, batch, run).result()
        self._finished_backfills.add(batch.backfill)

    def status(self, batch: ReplayBatch) -> BatchStatus:
        if batch.backfill in self._finished_backfills:
            return BatchStatus.FINISHED
        status = _backfill_status(self.instance, batch)
        abandoned = status is BatchStatus.RUNNING and not is_daemon_running(self.instance)
        return BatchStatus.UNKNOWN if abandoned else status

    def cancel(self, batch: ReplayBatch) -> None:
        """Does nothing: the process that runs the batch notices after it."""

    def _take_over(self, batch: ReplayBatch) -> bool:
        """Cancels a backfill without a daemon, or the next daemon would run it too."""
        backfill = self.instance.get_backfill(batch.backfill)
        if backfill is None:
            return True
        if backfill.status in internals.BULK_ACTION_TERMINAL_STATUSES or is_daemon_running(self.instance):
            return False
        self.instance.update_backfill(backfill.with_status(internals.BulkActionStatus.CANCELED))  # type: ignore[no-untyped-call]
        return True

    def _plan_runs(self, dataset: Dataset, batch: ReplayBatch) -> list[PlannedRun]:
        """Plans runs over the keys without an outcome, because the batch may have been started before."""
        asked = keys_of(self.services.database, batch.replay, states=("asked",))
        left = [DueKey(one.key, one.attempts, 0, 0, 0) for one in asked if one.batch == batch.batch]
        partitions = register_partitions(self.instance, dataset, [one.key for one in left])
        return plan_runs(dataset.dataset, left, partitions, self.services.settings.batch_size, dataset.concurrency)

    def _execute(self, dataset: Dataset, batch: ReplayBatch, run: PlannedRun) -> None:
        tags = {**run_tags(dataset, run.names), **range_tags(run.names), **_batch_tags(dataset, batch)}
        self.definitions.resolve_job_def(group_of(dataset)).execute_in_process(
            instance=self.instance, tags={**tags, BACKFILL_TAG: batch.backfill}, raise_on_error=False
        )

    def _wait_for_capacity(self, batch: ReplayBatch, run: PlannedRun) -> bool:
        """Returns False when the replay stops running meanwhile. Reaps dead runs, which would block it for ever."""
        while replays.read(self.services.database, batch.replay).state == "running":
            reap(self.instance, self.services)
            if RunCapacity.beside_active_runs(self.instance, self.services.datasets).fits(run):
                return True
            self.sleep(1.0)
        return False


def run_in_process(
    services: Services,
    replay: str,
    runner: BatchRunner,
    on_step: Callable[[ReplayStep], None] = lambda _: None,
    sleep: Sleep = time.sleep,
) -> ReplayStep:
    for _ in range(LOCK_ATTEMPTS):
        with replays.lock_replay(services.database, replay) as mine:
            if mine:
                while not (step := take_step(services, replay, runner)).is_last:
                    on_step(step)
                    sleep(min(step.wait_seconds, MAX_SLEEP_SECONDS))
                on_step(step)
                return step
        sleep(LOCK_POLL_SECONDS)
    raise ReplayRefused(f"another process is running replay {replay}; see `kfm replay status {replay}`")


def is_daemon_running(instance: dg.DagsterInstance) -> bool:
    """Stricter than Dagster, which trusts a daemon for half an hour. A failing sensor does not matter."""
    return internals.are_daemons_healthy(instance, DAEMONS, DAEMON_HEARTBEAT_SECONDS)


def refuse_without_daemon(instance: dg.DagsterInstance) -> None:
    if not is_daemon_running(instance):
        raise ReplayRefused(
            "no Dagster daemon is running to execute the backfills; start one with `kfm up`, or run the replay in this "
            "process with --here"
        )


def replay_sensor() -> dg.SensorDefinition:
    @dg.sensor(
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Carries on the replays under way: asks for the next batch as a backfill when the last is over.",
    )
    def kfm_replays(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SkipReason:
        repository = context.repository_def
        assert repository is not None  # noqa: S101 - the daemon always gives it
        return dg.SkipReason(tick(DaemonBatchRunner(context.instance, lambda: repository.asset_graph), services.open()))

    return kfm_replays


def tick(runner: DaemonBatchRunner, services: Services) -> str:
    """Advances every active replay by one step and returns a summary. A failing replay does not hold up the others."""
    try:
        active = replays.active_replays(services.database)
    except KfmError as error:
        return str(error)
    return "; ".join(_advance_replay(services, one.id, runner) for one in active) or "no replay is active"


def _advance_replay(services: Services, replay: str, runner: DaemonBatchRunner) -> str:
    try:
        step = advance(services, replay, runner)
    except KfmError as error:
        return f"replay {replay}: {error}"
    except Exception as error:  # noqa: BLE001 - its message may quote data
        log.error("replay %s could not be advanced", replay, extra={"replay_id": replay, **error_fields(error)})
        return f"replay {replay}: {type(error).__name__}"
    if step is None:
        return f"replay {replay}: another process is advancing it"
    return f"replay {replay} is {step.replay.state}" + (f": {step.replay.note}" if step.replay.note else "")


def _backfill_status(instance: dg.DagsterInstance, batch: ReplayBatch) -> BatchStatus:
    backfill = instance.get_backfill(batch.backfill)
    if backfill is None:
        return BatchStatus.UNKNOWN
    if backfill.status is internals.BulkActionStatus.CANCELED:
        return BatchStatus.CANCELLED
    return BatchStatus.FINISHED if backfill.status in internals.BULK_ACTION_TERMINAL_STATUSES else BatchStatus.RUNNING


def _batch_tags(dataset: Dataset, batch: ReplayBatch) -> dict[str, str]:
    return {REPLAY_TAG: batch.replay, DATASET_TAG: dataset.dataset}
