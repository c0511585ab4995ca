"""What is told of a run as a whole: that it has ended, how, and what it cost beside its keys."""

import logging
from dataclasses import replace

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import Work, enter_used, tell_costs
from kfm_pipelines.energy.meter import Meter, RunUsage, Usage
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.best_effort import excused
from kfm_pipelines.telemetry.logs.context import joined

BESIDE_KEYS = "other"

log = logging.getLogger(__name__)


def runs_of(services: Services) -> dict[str, RunUsage]:
    """Returns the runs that this process is executing, by id."""
    return services.load_once("runs", dict)


def run_begun(services: Services, run_id: str, *, own_process: bool) -> None:
    """In a process that was started for this run its start counts as well."""
    with excused(services.telemetry, "what a run costs", "energy"):
        runs_of(services)[run_id] = RunUsage(Meter.since_process_start() if own_process else Meter())


def run_ended(services: Services, dataset: Dataset, run_id: str, replay: str | None, *, succeeded: bool) -> None:
    with excused(services.telemetry, "the end of a run"):
        run = runs_of(services).pop(run_id, None)  # a stage that was run alone has begun nothing
        if run is not None:
            _enter(services, dataset, run_id, replay, _at_least_nothing(run.overhead()))
        _tell(services, dataset, run_id, replay, succeeded=succeeded)


def run_lost(services: Services, dataset: Dataset, run_id: str, replay: str | None) -> None:
    """It was stopped or died, elsewhere: it cost something, and nobody knows how much."""
    with excused(services.telemetry, "the end of a run"):
        _enter(services, dataset, run_id, replay, Usage(None, None))
        _tell(services, dataset, run_id, replay, succeeded=False)


def _enter(services: Services, dataset: Dataset, run_id: str, replay: str | None, usage: Usage) -> None:
    used = {Work(BESIDE_KEYS): usage}
    tell_costs(services, enter_used(services, run_id, used, dataset=dataset.dataset, replay=replay))


def _tell(services: Services, dataset: Dataset, run_id: str, replay: str | None, *, succeeded: bool) -> None:
    services.telemetry.metrics.set("pipeline_success", int(succeeded), dataset=dataset.dataset)
    with joined(run_id=run_id, dataset=dataset.dataset, replay_id=replay):
        log.log(logging.INFO if succeeded else logging.ERROR, "run ended %s", "well" if succeeded else "badly")
    services.telemetry.flush()


def _at_least_nothing(usage: Usage) -> Usage:
    """Memory is reckoned from what was seen now and then, so that parts may come to a little more than the whole."""
    held = usage.gigabyte_seconds
    return replace(usage, gigabyte_seconds=None if held is None else max(0.0, held))
