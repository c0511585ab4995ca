"""The sensor on the queue. A tick records what came, deletes it, then asks for runs; it may stop between any two."""

from collections.abc import Sequence

import dagster as dg

from kfm_pipelines.dispatch.chores import Chores
from kfm_pipelines.dispatch.dispatch import RunRequests, dispatch
from kfm_pipelines.dispatch.reaper import reap
from kfm_pipelines.errors import KfmError
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.inbox.record import BatchCounts
from kfm_pipelines.orchestration.dagster_internals import UnresolvedAssetJobDefinition
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.services import Services
from kfm_pipelines.watermarks.tick import format_watermarks, tick_watermarks

# Dagster drops the result of a tick after 60 s; stay far below.
DRAIN_SECONDS = 12.0


def ingest_sensor(jobs: Sequence[UnresolvedAssetJobDefinition], chores: Chores) -> dg.SensorDefinition:
    @dg.sensor(
        jobs=jobs,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Moves queue messages into the inbox and asks for runs over the keys that are due.",
    )
    def kfm_ingest(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SensorResult:
        return tick(context.instance, services.open(), chores)

    return kfm_ingest


def tick(instance: dg.DagsterInstance, services: Services, chores: Chores) -> dg.SensorResult:
    """A queue that is away holds up no key that is already recorded, and says so."""
    result = _tick(instance, services, chores)
    chores.gauges(services)
    return result


def _tick(instance: dg.DagsterInstance, services: Services, chores: Chores) -> dg.SensorResult:
    try:
        drained = "; ".join([_drain_queues(services, chores), *chores.run_always(services)])
        tick_watermarks(services.database, services.datasets)
        drained = "; ".join([drained, *format_watermarks(services.database)])
        reap(instance, services)
        requests = dispatch(instance, services)
    except KfmError as error:
        return dg.SensorResult(skip_reason=str(error))
    if requests.runs:
        return dg.SensorResult(run_requests=list(requests.runs))
    return dg.SensorResult(skip_reason=_format_skip_reason(drained, requests))


def _drain_queues(services: Services, chores: Chores) -> str:
    drained = drain_all(services, budget_seconds=DRAIN_SECONDS)
    told = [f"this tick: {_format_counts(drained.counts)}", *drained.problems]
    if drained.unreachable:
        return "; ".join(told)
    return "; ".join([*_format_depths(services), *told, *chores.run_after_drain(services, drained)])


def _format_depths(services: Services) -> list[str]:
    """How deep each queue is; of the quiet ones only the first."""
    try:
        depths = {intake.queue.name: intake.queue.depth() for intake in services.intakes}
    except KfmError as error:
        return [str(error)]
    busy = {name: depth for name, depth in depths.items() if depth.waiting + depth.in_flight}
    shown = busy or {services.queue.name: depths[services.queue.name]}
    return [f"queue {name}: {depth.waiting} waiting, {depth.in_flight} in flight" for name, depth in shown.items()]


def _format_counts(counts: BatchCounts) -> str:
    if counts == BatchCounts():
        return "no messages"
    return f"{counts.recorded} new events, {counts.duplicates} duplicates, {counts.refused} refused"


def _format_skip_reason(drain_text: str, requests: RunRequests) -> str:
    for killed, keys in requests.stopped:
        drain_text += f"; {keys} keys wait: {killed.dataset} is killed ({killed.reason})"
    runs = f"{requests.open_runs} runs open"
    if requests.held_back:
        return f"{drain_text}; {requests.held_back} keys wait until one of the {runs} ends"
    return f"{drain_text}; no {'other ' if requests.stopped else ''}key is due, {runs}"
