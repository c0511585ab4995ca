"""What is told of a run as a whole: that it has ended, how, and what it cost beside its keys."""

import logging
from dataclasses import replace

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy.emit import Work, enter_used, tell_costs
from kfm_pipelines.energy.meter import Meter, RunUsage, Usage
from kfm_pipelines.services import Workshop
from kfm_pipelines.telemetry.best_effort import excused
from kfm_pipelines.telemetry.logs.context import joined

BESIDE_KEYS = "other"

log = logging.getLogger(__name__)


def run_begun(workshop: Workshop, run_id: str, *, own_process: bool) -> None:
    """In a process that was started for this run its start counts as well."""
    with excused(workshop.telemetry, "what a run costs", "energy"):
        workshop.runs[run_id] = RunUsage(Meter.of_process() if own_process else Meter())


def run_ended(workshop: Workshop, dataset: Dataset, run_id: str, replay: str | None, *, well: bool) -> None:
    with excused(workshop.telemetry, "the end of a run"):
        run = workshop.runs.pop(run_id, None)  # a stage that was run alone has begun nothing
        if run is not None:
            _enter(workshop, dataset, run_id, replay, _at_least_nothing(run.beside_keys()))
        _tell(workshop, dataset, run_id, replay, well=well)


def run_lost(workshop: Workshop, dataset: Dataset, run_id: str, replay: str | None) -> None:
    """It was stopped or died, elsewhere: it cost something, and nobody knows how much."""
    with excused(workshop.telemetry, "the end of a run"):
        _enter(workshop, dataset, run_id, replay, Usage(None, None))
        _tell(workshop, dataset, run_id, replay, well=False)


def _enter(workshop: Workshop, dataset: Dataset, run_id: str, replay: str | None, usage: Usage) -> None:
    used = {Work(BESIDE_KEYS): usage}
    tell_costs(workshop, enter_used(workshop, run_id, used, dataset=dataset.dataset, replay=replay))


def _tell(workshop: Workshop, dataset: Dataset, run_id: str, replay: str | None, *, well: bool) -> None:
    workshop.telemetry.metrics.set("pipeline_success", int(well), dataset=dataset.dataset)
    with joined(run_id=run_id, dataset=dataset.dataset, replay_id=replay):
        log.log(logging.INFO if well else logging.ERROR, "run ended %s", "well" if well else "badly")
    workshop.telemetry.flush()


def _at_least_nothing(usage: Usage) -> Usage:
    """Memory is reckoned from what was seen now and then, so that parts may come to a little more than the whole."""
    held = usage.gigabyte_seconds
    return replace(usage, gigabyte_seconds=None if held is None else max(0.0, held))
