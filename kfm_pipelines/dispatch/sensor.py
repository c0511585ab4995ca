"""The ingest sensor. A tick records messages, deletes them, then requests runs; it may stop between any two steps."""

import time
from collections.abc import Sequence

import dagster as dg

from kfm_pipelines.console.output import format_count
from kfm_pipelines.dispatch.dispatch import Chores, RunRequests, dispatch, reap
from kfm_pipelines.dispatch.tables import seconds_until_due
from kfm_pipelines.errors import KfmError
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.inbox.record import BatchCounts
from kfm_pipelines.orchestration.dagster_internals import UnresolvedAssetJobDefinition
from kfm_pipelines.orchestration.loaded_code import note_loaded_code
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import Database
from kfm_pipelines.watermarks.late import tick_watermarks
from kfm_pipelines.watermarks.late_lane import count_held_by_dataset
from kfm_pipelines.watermarks.queries import read_watermarks

# Dagster drops the result of a tick after 60 s, and messages wait for its end: a tick stays under 20 s. Requesting runs
# ends early enough for what has begun by then, but never before it has begun.
DRAIN_SECONDS = 12.0
DISPATCH_UNTIL_SECONDS = 15.0
MIN_DISPATCH_SECONDS = 3.0
# Dagster looks every five seconds, or right after a tick that took longer. A sensor whose interval is as long is never
# quite due then, and ticks every ten seconds.
TICK_SECONDS = 4
IDLE_SECONDS = 4


def ingest_sensor(jobs: Sequence[UnresolvedAssetJobDefinition], chores: Chores) -> dg.SensorDefinition:
    @dg.sensor(
        jobs=jobs,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Moves queue messages into the inbox and requests runs over due keys.",
    )
    def kfm_ingest(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SensorResult:
        return tick(context.instance, services.open(), chores, idle_seconds=IDLE_SECONDS)

    return kfm_ingest


def tick(instance: dg.DagsterInstance, services: Services, chores: Chores, *, idle_seconds: int = 0) -> dg.SensorResult:
    """Keys that are already recorded do not wait for a queue that is unavailable. With nothing to do, a tick waits for
    a message, because Dagster rests between ticks."""
    began = time.monotonic()
    try:
        problems = chores.run_always(services)  # first, because what is announced to derived datasets is work as well
        drained = "; ".join([_drain_queues(services, chores, idle_seconds), *problems])
        note_loaded_code(instance, services)
        tick_watermarks(services.database, services.datasets)
        drained = "; ".join([drained, *_format_watermarks(services.database)])
        reap(instance, services)
        deadline = max(began + DISPATCH_UNTIL_SECONDS, time.monotonic() + MIN_DISPATCH_SECONDS)
        requests = dispatch(instance, services, deadline=deadline)
        if requests.runs:
            return dg.SensorResult(run_requests=list(requests.runs))
        return dg.SensorResult(skip_reason=_format_skip_reason(drained, requests))
    except KfmError as error:
        return dg.SensorResult(skip_reason=str(error))
    finally:
        chores.gauges(services)


def _drain_queues(services: Services, chores: Chores, idle_seconds: int) -> str:
    until_due = seconds_until_due(services.database, services.datasets)
    is_idle = until_due is None or until_due > idle_seconds
    drained = drain_all(services, budget_seconds=DRAIN_SECONDS, wait_seconds=idle_seconds if is_idle else 0)
    summary = [f"this tick: {_format_counts(drained.counts)}", *drained.problems]
    if drained.unreachable:
        return "; ".join(summary)
    return "; ".join([*_format_depths(services), *summary, *chores.run_after_drain(services, drained)])


def _format_depths(services: Services) -> list[str]:
    """Returns the depth of each busy queue, or of the first one if all are empty."""
    try:
        depths = {intake.queue.name: intake.queue.depth() for intake in services.intakes}
    except KfmError as error:
        return [str(error)]
    busy = {name: depth for name, depth in depths.items() if depth.waiting + depth.in_flight}
    displayed = busy or {services.queue.name: depths[services.queue.name]}
    return [f"queue {name}: {depth.waiting} waiting, {depth.in_flight} in flight" for name, depth in displayed.items()]


def _format_watermarks(database: Database) -> list[str]:
    """Returns a phrase for each dataset that has a watermark or held events."""
    marks, held = read_watermarks(database), count_held_by_dataset(database)
    return [
        (f"{dataset} complete until {marks[dataset]:%Y-%m-%dT%H:%MZ}" if dataset in marks else dataset)
        + (f", {held[dataset]} late held" if dataset in held else "")
        for dataset in sorted({*marks, *held})
    ]


def _format_counts(counts: BatchCounts) -> str:
    if counts == BatchCounts():
        return "no messages"
    recorded, duplicates = format_count(counts.recorded, "new event"), format_count(counts.duplicates, "duplicate")
    return f"{recorded}, {duplicates}, {counts.refused} refused"


def _format_skip_reason(drain_text: str, requests: RunRequests) -> str:
    for killed, keys in requests.stopped:
        drain_text += f"; {_format_waiting(keys)}: {killed.dataset} is killed ({killed.reason})"
    runs = f"{format_count(requests.open_runs, 'run')} open"
    if requests.held_back:
        return f"{drain_text}; {_format_waiting(requests.held_back)} for one of the {runs} to end"
    return f"{drain_text}; no {'other ' if requests.stopped else ''}key is due, {runs}"


def _format_waiting(keys: int) -> str:
    return f"{format_count(keys, 'key')} wait{'s' if keys == 1 else ''}"
