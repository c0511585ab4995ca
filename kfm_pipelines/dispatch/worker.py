"""A worker in this process: drains the queues and executes due keys with the same Dagster jobs, without a daemon."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from uuid import uuid4

import dagster as dg

from kfm_pipelines.dispatch import dispatch
from kfm_pipelines.dispatch.dispatch import Chores
from kfm_pipelines.dispatch.plan import HISTORY_LENGTH, NON_URGENT_INTERVAL, FairScheduler, PlannedRun, RunCapacity
from kfm_pipelines.dispatch.tables import recent_dispatches, record_dispatch, seconds_until_due
from kfm_pipelines.inbox.drain import MAX_DRAIN_SECONDS, drain_all
from kfm_pipelines.orchestration.dagster_internals import RUN_KEY_TAG, was_interrupted
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import group_of
from kfm_pipelines.services import Services
from kfm_pipelines.stages.trigger import EVENT_RUN_TAGS
from kfm_pipelines.state.keys import keys_awaiting_review
from kfm_pipelines.state.liveness import ProcessLock, count_workers, planning, record_run
from kfm_pipelines.state.wal import Outcome, last_entries_of_run
from kfm_pipelines.watermarks.late import tick_watermarks

MIN_SLEEP_SECONDS = 0.1
MAX_SLEEP_SECONDS = 5.0
BOUND_SLEEP_SECONDS = 0.5  # while due keys are bound to another worker or wait for a limited run
RUNS_BETWEEN_DRAINS = NON_URGENT_INTERVAL


@dataclass
class WorkSummary:
    """What a worker did. A key that was run several times counts with its last outcome."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    awaiting_review: set[str] = field(default_factory=set)
    runs: int = 0
    problems: tuple[str, ...] = ()  # of the last round

    def add(self, later: "WorkSummary") -> None:
        self.outcomes |= later.outcomes
        self.awaiting_review = (self.awaiting_review | later.awaiting_review) - later.outcomes.keys()
        self.runs += later.runs
        self.problems = later.problems

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
    workers: int = 1,
    on_progress: Callable[[WorkSummary], None] = lambda _: None,
) -> WorkSummary:
    """Drains, dispatches and executes until nothing is due or about to be (`once`), or for ever. `workers` is how many
    start together with this one. `on_progress` gets each run, and the problems when they change."""
    worked = WorkSummary()
    lock = ProcessLock(services.database, worker=True)
    with closing(lock), open_instance() as instance:
        while True:
            drained = drain_all(services, budget_seconds=MAX_DRAIN_SECONDS)
            chores.run_after_drain(services, drained)
            tick_watermarks(services.database, services.datasets)
            dispatch.reap(instance, services)
            problems = (*drained.problems, *chores.run_always(services))
            if problems != worked.problems:
                on_progress(WorkSummary(problems=problems))
            worked.problems = problems
            before = worked.runs
            for _ in range(RUNS_BETWEEN_DRAINS):
                run = _bind_next_run(instance, services, lock.number, workers)
                if run is None:
                    break
                done = replace(_execute(definitions, instance, services, run, lock.number), problems=problems)
                worked.add(done)
                on_progress(done)
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
    if wait == 0:
        return BOUND_SLEEP_SECONDS
    return min(max(wait, MIN_SLEEP_SECONDS) if wait is not None else MAX_SLEEP_SECONDS, MAX_SLEEP_SECONDS)


def _bind_next_run(
    instance: dg.DagsterInstance, services: Services, process: int, workers: int = 1
) -> PlannedRun | None:
    """Returns the next due run in fair order, with its keys bound to this worker.

    Takes over keys of a run that was requested and has not started, because no daemon may be there to start it."""
    database = services.database
    with planning(database):
        still_open = dispatch.close_finished_dispatches(instance, services)
        waiting_requests = [one.dispatch.run_key for one in still_open if one.is_waiting]
        by_workers = [one for one in still_open if one.dispatch.process is not None]
        capacity = RunCapacity.beside_active_runs(instance, services.datasets)
        for one in by_workers:
            if one.run is None:
                capacity.reserve(one.dispatch.dataset, one.dispatch.keys, slots=0)
        scheduler = FairScheduler(recent_dispatches(database, HISTORY_LENGTH))
        idle = max(count_workers(database), workers) - len(by_workers)
        runs = dispatch.plan_due_runs(instance, services, scheduler, slots=idle, taking_over=waiting_requests)
        run = scheduler.choose_next(run for run in runs if capacity.fits(run))
        bound = run and record_dispatch(
            database, run.run_key, run.dataset, run.names, process=process, taking_over=waiting_requests
        )
        return run if bound else None


def _execute(
    definitions: dg.Definitions, instance: dg.DagsterInstance, services: Services, run: PlannedRun, process: int
) -> WorkSummary:
    run_id = str(uuid4())
    record_run(services.database, run_id, process)
    _run_job(definitions, instance, services, run, run_id)
    outcomes = {
        key: entry.outcome
        for key, entry in last_entries_of_run(services.database, run_id, run.names).items()
        if entry.outcome is not None and "again_in_seconds" not in entry.detail
    }
    return WorkSummary(outcomes, keys_awaiting_review(services.database, run.names), runs=1)


def _run_job(
    definitions: dg.Definitions, instance: dg.DagsterInstance, services: Services, run: PlannedRun, run_id: str
) -> None:
    dataset = services.datasets[run.dataset]
    tags = {**dispatch.run_tags(dataset, run.names), **dispatch.range_tags(run.names), **EVENT_RUN_TAGS}
    result = definitions.resolve_job_def(group_of(dataset)).execute_in_process(
        instance=instance, run_id=run_id, tags={**tags, RUN_KEY_TAG: run.run_key}, raise_on_error=False
    )
    dispatch.close_finished_dispatches(instance, services)
    if was_interrupted(result):
        raise KeyboardInterrupt
