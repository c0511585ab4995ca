"""A worker in this process: drains the queues and executes due keys with the same Dagster jobs, without a daemon."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import dagster as dg

from kfm_pipelines.care.review.tables import pending_reviews
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.dispatch import dispatch
from kfm_pipelines.dispatch.dispatch import Chores
from kfm_pipelines.dispatch.plan import HISTORY_LENGTH, NON_URGENT_INTERVAL, FairScheduler, PlannedRun, RunCapacity
from kfm_pipelines.dispatch.tables import recent_dispatches, seconds_until_due
from kfm_pipelines.inbox.drain import MAX_DRAIN_SECONDS, drain_all
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import group_of
from kfm_pipelines.services import Services
from kfm_pipelines.stages.trigger import EVENT_RUN_TAGS
from kfm_pipelines.state.wal import Outcome, last_entries_of_run
from kfm_pipelines.watermarks.late import tick_watermarks

MIN_SLEEP_SECONDS = 0.1
MAX_SLEEP_SECONDS = 5.0
RUNS_BETWEEN_DRAINS = NON_URGENT_INTERVAL


@dataclass
class WorkSummary:
    """What a worker did. A key that was run several times counts with its last outcome."""

    outcomes: dict[str, Outcome | None] = field(default_factory=dict)
    awaiting_review: set[str] = field(default_factory=set)
    runs: int = 0
    problems: tuple[str, ...] = ()  # of the last round

    def counts(self) -> dict[str, int]:
        found = Counter(self.outcomes.values())
        return {
            "keys": len(self.outcomes),
            "published": found[Outcome.APPLIED],
            "skipped": found[Outcome.SKIPPED],
            "failed": found[Outcome.FAILED],
            **({"awaiting_review": len(self.awaiting_review)} if self.awaiting_review else {}),
        }


def work(
    services: Services,
    definitions: dg.Definitions,
    chores: Chores,
    *,
    once: bool,
    on_progress: Callable[[WorkSummary], None] = lambda _: None,
) -> WorkSummary:
    """Drains, dispatches and executes until nothing is due or about to be (`once`), or for ever."""
    worked = WorkSummary()
    scheduler = FairScheduler(recent_dispatches(services.database, HISTORY_LENGTH))
    with open_instance() as instance:
        while True:
            drained = drain_all(services, budget_seconds=MAX_DRAIN_SECONDS)
            chores.run_after_drain(services, drained)
            tick_watermarks(services.database, services.datasets)
            dispatch.close_finished_dispatches(instance, services)
            dispatch.reap(instance, services)
            problems = (*drained.problems, *chores.run_always(services))
            if problems and problems != worked.problems:
                on_progress(replace(worked, problems=problems))
            worked.problems = problems
            before = worked.runs
            for run in _next_runs(instance, services, scheduler):
                _execute(definitions, instance, services, run, worked)
                on_progress(worked)
            if worked.runs > before or drained.counts.received:
                if not once:
                    chores.gauges(services)
                continue
            pause = _sleep_seconds(services, once)
            if pause is None:
                chores.gauges(services, at_once=True)
                return worked
            chores.gauges(services)
            time.sleep(pause)


def _sleep_seconds(services: Services, once: bool) -> float | None:
    """Returns how long to wait for the next key; None when `once` and none is due soon."""
    wait = seconds_until_due(services.database, services.datasets)
    near = wait is not None and wait <= services.settings.lease_seconds + 1
    if once and not near:
        return None
    return min(max(wait, MIN_SLEEP_SECONDS) if wait is not None else MAX_SLEEP_SECONDS, MAX_SLEEP_SECONDS)


def _next_runs(instance: dg.DagsterInstance, services: Services, scheduler: FairScheduler) -> Iterator[PlannedRun]:
    """Yields some of the due runs in fair order; new events are considered after these.

    Includes keys for which a run was requested, because no daemon may be there to start it; a claim keeps two runs from
    processing the same key."""
    limit = RUNS_BETWEEN_DRAINS * services.settings.batch_size
    waiting = dispatch.plan_due_runs(instance, services, limit=limit, also_dispatched=True)
    for _ in range(RUNS_BETWEEN_DRAINS):
        capacity = RunCapacity.beside_active_runs(instance, services.datasets)
        run = scheduler.choose_next(run for run in waiting if capacity.fits(run))
        if run is None:
            return
        waiting.remove(run)
        scheduler.record_run(run)
        yield run


def _execute(
    definitions: dg.Definitions, instance: dg.DagsterInstance, services: Services, run: PlannedRun, summary: WorkSummary
) -> None:
    begun = time.monotonic()
    run_id, succeeded = _run_job(definitions, instance, services.datasets[run.dataset], run.names)
    if not succeeded:
        dispatch.postpone_keys(services, run.dataset, run_id, run.names, time.monotonic() - begun)
    entries = last_entries_of_run(services.database, run_id, run.names)
    summary.runs += 1
    summary.awaiting_review = {waiting.key for waiting in pending_reviews(services.database)} & (
        summary.awaiting_review | set(run.names)
    )
    for key, entry in entries.items():
        if entry.outcome is not None and "again_in_seconds" not in entry.detail:
            summary.outcomes[key] = entry.outcome


def _run_job(
    definitions: dg.Definitions, instance: dg.DagsterInstance, dataset: Dataset, keys: Sequence[str]
) -> tuple[str, bool]:
    """Returns the id of the run and whether it succeeded."""
    result = definitions.resolve_job_def(group_of(dataset)).execute_in_process(
        instance=instance,
        tags={**dispatch.run_tags(dataset, keys), **dispatch.range_tags(keys), **EVENT_RUN_TAGS},
        raise_on_error=False,
    )
    return result.run_id, result.success
