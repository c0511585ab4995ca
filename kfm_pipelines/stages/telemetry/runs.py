"""What is told of a run as a whole: that it has ended, how, and what it cost beside its keys."""

import logging
from dataclasses import replace

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import WorkUnit, emit_costs, record_usage
from kfm_pipelines.energy.meter import Meter, RunUsage, Usage
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.process import best_effort

OUTSIDE_KEYS = "other"

log = logging.getLogger(__name__)


def active_runs(services: Services) -> dict[str, RunUsage]:
    """Returns the runs that this process is executing, by id."""
    return services.load_once("runs", dict)


def begin_run_metering(services: Services, run_id: str, *, own_process: bool) -> None:
    """In a process that was started for this run its start counts as well."""
    with best_effort(services.telemetry, "what a run costs", "energy"):
        active_runs(services)[run_id] = RunUsage(Meter.since_process_start() if own_process else Meter())


def emit_run_end(services: Services, dataset: Dataset, run_id: str, replay: str | None, *, succeeded: bool) -> None:
    with best_effort(services.telemetry, "the end of a run"):
        run = active_runs(services).pop(run_id, None)  # a stage that was run alone has begun nothing
        if run is not None:
            _record_usage(services, dataset, run_id, replay, _clamp_memory(run.overhead()))
        _emit_result(services, dataset, run_id, replay, succeeded=succeeded)


def emit_run_lost(services: Services, dataset: Dataset, run_id: str, replay: str | None) -> None:
    """It was stopped or died, elsewhere: it cost something, and nobody knows how much."""
    with best_effort(services.telemetry, "the end of a run"):
        _record_usage(services, dataset, run_id, replay, Usage(None, None))
        _emit_result(services, dataset, run_id, replay, succeeded=False)


def _record_usage(services: Services, dataset: Dataset, run_id: str, replay: str | None, usage: Usage) -> None:
    used = {WorkUnit(OUTSIDE_KEYS): usage}
    emit_costs(services, record_usage(services, run_id, used, dataset=dataset.dataset, replay=replay))


def _emit_result(services: Services, dataset: Dataset, run_id: str, replay: str | None, *, succeeded: bool) -> None:
    services.telemetry.metrics.set("pipeline_success", int(succeeded), dataset=dataset.dataset)
    with log_context(run_id=run_id, dataset=dataset.dataset, replay_id=replay):
        log.log(logging.INFO if succeeded else logging.ERROR, "run ended %s", "well" if succeeded else "badly")
    services.telemetry.flush()


def _clamp_memory(usage: Usage) -> Usage:
    """Memory is reckoned from what was seen now and then, so that parts may come to a little more than the whole."""
    held = usage.gigabyte_seconds
    return replace(usage, gigabyte_seconds=None if held is None else max(0.0, held))
