"""Where runs are told of: when the last stage of one ends, when any of them fails, and by whoever finds a run that was
stopped. The first stage tells of the start."""

import multiprocessing
import sys

import dagster as dg

from kfm_pipelines.catalog.lineage.send import send_run_event
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.orchestration.names import STAGES, group_of
from kfm_pipelines.services import Services
from kfm_pipelines.stages.telemetry.runs import begin_run_metering, emit_run_end, emit_run_lost
from kfm_pipelines.stages.trigger import RunTrigger


def emit_run_start(services: Services, dataset: Dataset, run_id: str) -> None:
    begin_run_metering(services, run_id, own_process=_is_run_process())
    send_run_event(services, dataset, run_id, "START")


def run_hooks(dataset: Dataset, stage: str) -> set[dg.HookDefinition]:
    """On the assets, so that a run is told of whoever asked for it. A canary publishes nothing and is not told of."""

    @dg.success_hook(name=f"{group_of(dataset)}_run_complete", required_resource_keys={"services"})
    def complete(context: dg.HookContext) -> None:
        _emit_run_end(context, dataset, succeeded=True)

    @dg.failure_hook(name=f"{group_of(dataset)}_run_fail", required_resource_keys={"services"})
    def fail(context: dg.HookContext) -> None:
        _emit_run_end(context, dataset, succeeded=False)

    if stage not in STAGES:
        return set()
    return {complete, fail} if stage == STAGES[-1] else {fail}


def emit_run_abort_if_stopped(
    instance: dg.DagsterInstance, services: Services, dataset: Dataset, run: dg.DagsterRun
) -> None:
    """A run that ended badly without a stage that failed was stopped, or died: it could not tell so itself."""
    failures = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1)
    if not failures.records:
        send_run_event(services, dataset, run.run_id, "ABORT")
        emit_run_lost(services, dataset, run.run_id, RunTrigger.from_tags(run.tags).replay)


def _emit_run_end(context: dg.HookContext, dataset: Dataset, *, succeeded: bool) -> None:
    services: Services = context.resources.services.open()
    send_run_event(services, dataset, context.run_id, "COMPLETE" if succeeded else "FAIL")
    run = context.instance.get_run_by_id(context.run_id)
    replay = RunTrigger.from_tags(run.tags).replay if run else None
    emit_run_end(services, dataset, context.run_id, replay, succeeded=succeeded)


def _is_run_process() -> bool:
    """Whether this process was started by Dagster for one run: by its code server, or on a machine of its own."""
    return multiprocessing.parent_process() is not None or "execute_run" in sys.argv
