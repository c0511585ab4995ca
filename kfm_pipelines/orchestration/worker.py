"""A worker in this process: drains the queue and runs what is due through the same Dagster jobs, without a daemon."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import dagster as dg

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.operations.collections import refresh_stale
from kfm_pipelines.operations.drain import drain
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.orchestration.build import build_definitions
from kfm_pipelines.orchestration.dispatch import again_in, range_tags, register_partitions, settle
from kfm_pipelines.orchestration.naming import group_of
from kfm_pipelines.orchestration.plan import PlannedRun, plan_runs
from kfm_pipelines.state.dispatches import due_keys, put_off_untouched, seconds_until_due
from kfm_pipelines.state.wal import Outcome, last_entries_of_run

DRAIN_SECONDS = 15.0
LONGEST_NAP_SECONDS = 5.0


@dataclass
class Worked:
    """What a worker did. A key that came several times counts with its last outcome."""

    outcomes: dict[str, Outcome | None] = field(default_factory=dict)
    runs: int = 0

    def counts(self) -> dict[str, int]:
        found = Counter(self.outcomes.values())
        return {
            "keys": len(self.outcomes),
            "published": found[Outcome.APPLIED],
            "skipped": found[Outcome.SKIPPED],
            "failed": found[Outcome.FAILED],
        }


def work(workshop: Workshop, *, once: bool, on_progress: Callable[[Worked], None] = lambda _: None) -> Worked:
    """Drain, dispatch and execute; until nothing is due or about to be (`once`), or for ever."""
    definitions = build_definitions(workshop.settings.resources)
    worked = Worked()
    with dg.DagsterInstance.get() as instance:
        while True:
            drained = drain(workshop.database, workshop.queue, workshop.datasets, budget_seconds=DRAIN_SECONDS)
            settle(instance, workshop)
            refresh_stale(workshop)
            runs = _due_runs(instance, workshop)
            for run in runs:
                _execute(definitions, instance, workshop, run, worked)
                on_progress(worked)
            if runs or drained.received:
                continue
            nap = _nap(workshop, once)
            if nap is None:
                return worked
            time.sleep(nap)


def _nap(workshop: Workshop, once: bool) -> float | None:
    """How long to wait for the next key; None when `once` and nothing is near."""
    wait = seconds_until_due(workshop.database)
    near = wait is not None and wait <= workshop.settings.lease_seconds + 1
    if once and not near:
        return None
    return min(wait if wait is not None else LONGEST_NAP_SECONDS, LONGEST_NAP_SECONDS) or 0.05


def _due_runs(instance: dg.DagsterInstance, workshop: Workshop) -> list[PlannedRun]:
    """Keys a run was asked for as well: nobody may be there to start it, and a claim keeps two from doing the same."""
    runs: list[PlannedRun] = []
    for dataset in workshop.datasets.values():
        due = due_keys(
            workshop.database, dataset.dataset, limit=workshop.settings.batch_size * 10, also_dispatched=True
        )
        if due:
            partitions = register_partitions(instance, dataset, due)
            runs += plan_runs(dataset.dataset, due, partitions, workshop.settings.batch_size)
    return runs


def _execute(
    definitions: dg.Definitions, instance: dg.DagsterInstance, workshop: Workshop, run: PlannedRun, worked: Worked
) -> None:
    dataset: Dataset = workshop.datasets[run.dataset]
    job = definitions.resolve_job_def(group_of(dataset))
    result = job.execute_in_process(
        instance=instance,
        tags={"kfm/dataset": run.dataset, "kfm/keys": str(len(run.keys)), **range_tags(run.names)},
        raise_on_error=False,
    )
    if not result.success:
        put_off_untouched(workshop.database, result.run_id, run.names, again_in(workshop))
    entries = last_entries_of_run(workshop.database, result.run_id, run.names)
    worked.runs += 1
    for key, entry in entries.items():
        if entry.outcome is not None and "again_in_seconds" not in entry.detail:
            worked.outcomes[key] = entry.outcome
