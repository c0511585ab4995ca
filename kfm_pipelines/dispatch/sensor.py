"""The sensor on the queue. A tick records what came, deletes it, then asks for runs; it may stop between any two."""

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from kfm_pipelines.catalog.collections.refresh import refresh_stale
from kfm_pipelines.dispatch.dispatch import Requests, dispatch
from kfm_pipelines.dispatch.reaper import reap
from kfm_pipelines.errors import KfmError
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.inbox.record import Tally
from kfm_pipelines.operations.dead_letters.collect import tend_letters
from kfm_pipelines.operations.status.gauges import take_vital_signs
from kfm_pipelines.orchestration.resource import WorkshopResource
from kfm_pipelines.services import Workshop
from kfm_pipelines.stages.publish.recover import complete_seen
from kfm_pipelines.watermarks.tick import keep_time, time_told

# Dagster drops the result of a tick after 60 s; stay far below.
DRAIN_SECONDS = 12.0


def ingest_sensor(jobs: Sequence[UnresolvedAssetJobDefinition]) -> dg.SensorDefinition:
    @dg.sensor(
        jobs=jobs,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Moves queue messages into the inbox and asks for runs over the keys that are due.",
    )
    def kfm_ingest(context: dg.SensorEvaluationContext, workshop: WorkshopResource) -> dg.SensorResult:
        return tick(context.instance, workshop.open())

    return kfm_ingest


def tick(instance: dg.DagsterInstance, workshop: Workshop) -> dg.SensorResult:
    """A queue that is away holds up no key that is already recorded, and says so."""
    result = _tick(instance, workshop)
    take_vital_signs(workshop)
    return result


def _tick(instance: dg.DagsterInstance, workshop: Workshop) -> dg.SensorResult:
    try:
        drained = "; ".join([_drained(workshop), *complete_seen(workshop), *refresh_stale(workshop)])
        keep_time(workshop.database, workshop.datasets)
        drained = "; ".join([drained, *time_told(workshop.database)])
        reap(instance, workshop)
        requests = dispatch(instance, workshop)
    except KfmError as error:
        return dg.SensorResult(skip_reason=str(error))
    if requests.runs:
        return dg.SensorResult(run_requests=list(requests.runs))
    return dg.SensorResult(skip_reason=_skip_reason(drained, requests))


def _drained(workshop: Workshop) -> str:
    drained = drain_all(workshop, budget_seconds=DRAIN_SECONDS)
    told = [f"this tick: {_told(drained.tally)}", *drained.problems]
    if drained.unreachable:
        return "; ".join(told)
    return "; ".join([*_depths(workshop), *told, *tend_letters(workshop)])


def _depths(workshop: Workshop) -> list[str]:
    """How deep each queue is; of the quiet ones only the first."""
    try:
        depths = {intake.queue.name: intake.queue.depth() for intake in workshop.intakes}
    except KfmError as error:
        return [str(error)]
    busy = {name: depth for name, depth in depths.items() if depth.waiting + depth.in_flight}
    shown = busy or {workshop.queue.name: depths[workshop.queue.name]}
    return [f"queue {name}: {depth.waiting} waiting, {depth.in_flight} in flight" for name, depth in shown.items()]


def _told(tally: Tally) -> str:
    if tally == Tally():
        return "no messages"
    return f"{tally.recorded} new events, {tally.duplicates} duplicates, {tally.refused} refused"


def _skip_reason(drained: str, requests: Requests) -> str:
    for killed, keys in requests.stopped:
        drained += f"; {keys} keys wait: {killed.dataset} is killed ({killed.reason})"
    runs = f"{requests.open_runs} runs open"
    if requests.held_back:
        return f"{drained}; {requests.held_back} keys wait until one of the {runs} ends"
    return f"{drained}; no {'other ' if requests.stopped else ''}key is due, {runs}"
