"""Batches as Dagster runs them: as backfills of a daemon or as runs in this process, each key once."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import dagster as dg
import psutil  # type: ignore[import-untyped]
import pytest
from dagster._core.execution.backfill import BulkActionStatus
from dagster._daemon.types import DaemonHeartbeat

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.plan import RunCapacity
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.replay import commands, jobs, tables
from kfm_pipelines.operations.replay.advance import advance
from kfm_pipelines.operations.replay.jobs import (
    DAEMONS,
    DaemonBatchRunner,
    LocalBatchRunner,
    refuse_without_daemon,
    run_in_process,
    tick,
)
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import STAGES
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import ReplayTerms
from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.runs.replay import (
    HOURS,
    key_states,
    moves,
    outcomes,
    planned,
    published_hours,
    start_untried,
)
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site

DAEMON = """
from dagster import DagsterInstance
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon import controller

from kfm_pipelines.settings import shipped_path

controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 1  # otherwise it looks at backfills twice a minute
workspace = WorkspaceFileTarget([str(shipped_path("workspace.yaml"))])
with DagsterInstance.get() as instance, controller.daemon_controller_from_instance(instance, workspace) as daemons:
    daemons.check_daemon_loop()
"""


@pytest.fixture(scope="module")
def definitions(shared_published: Site) -> dg.Definitions:
    return build_definitions(shared_published.services.settings.resources)


@pytest.fixture
def daemon(published: Site, definitions: dg.Definitions) -> Iterator[DaemonBatchRunner]:
    """Stores backfills that nobody runs."""
    with open_instance() as instance:
        yield DaemonBatchRunner(instance, definitions.resolve_asset_graph)


@pytest.fixture
def local(published: Site, daemon: DaemonBatchRunner, definitions: dg.Definitions) -> LocalBatchRunner:
    return LocalBatchRunner(daemon.instance, published.services, definitions, sleep=lambda _: None)


def status_of(daemon: DaemonBatchRunner, backfill: str) -> BulkActionStatus:
    found = daemon.instance.get_backfill(backfill)
    assert found is not None
    return found.status


def end_backfill(daemon: DaemonBatchRunner, backfill: str, status: BulkActionStatus) -> None:
    found = daemon.instance.get_backfill(backfill)
    assert found is not None
    daemon.instance.update_backfill(found.with_status(status))  # type: ignore[no-untyped-call]


@contextmanager
def running_daemon(site: Site) -> Iterator[None]:
    """Dagster's daemon in a process of its own, without the UI."""
    with (site.root / "daemon.log").open("wb") as out:
        process = Forked(["-c", DAEMON], env=site.environment, stdout=out, stderr=out)
        try:
            yield
        finally:
            # Its code server outlives it when the database is dropped too soon.
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            process.wait(60)
            for child in psutil.wait_procs(children, timeout=1)[1]:
                child.kill()


@pytest.mark.slow
def test_a_real_daemon_finishes_the_backfills(site: Site) -> None:
    keys = published_hours(site, 2)
    plan = planned(site, 2)
    with running_daemon(site), dg.DagsterInstance.get() as instance:
        assert eventually(lambda: set(DAEMONS) <= set(instance.get_daemon_heartbeats()), seconds=60)
        run = ("replay", "run", plan.id, "--canary", "1", "--by", "ana", "--json")
        done = kfm(site.environment, *run, seconds=200).json
        backfills = {one.backfill_id: one for one in instance.get_backfills()}
        runs = instance.get_runs(dg.RunsFilter(tags={"kfm/replay": plan.id}))
    assert (done["state"], done["outcomes"]) == ("done", {"SKIPPED": 2})
    statuses = {one: backfill.status.value for one, backfill in backfills.items()}
    assert statuses == {f"{plan.id}-1": "COMPLETED_SUCCESS"}
    assert [one["backfill"] for one in done["batches"]] == sorted(backfills)
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS]
    assert outcomes(site, plan.id) == {key: ["SKIPPED"] for key in keys}
    assert moves(site, plan.id)[-1] == ("done", "kfm")


def test_several_ticks_at_once_ask_for_each_batch_once(published: Site, daemon: DaemonBatchRunner) -> None:
    site, services = published, published.services
    plan = planned(site, 4)
    start_untried(site, plan.id, here=False, batch=2)
    ticks = [threading.Thread(target=tick, args=(daemon, services)) for _ in range(4)]
    for one in ticks:
        one.start()
    for one in ticks:
        one.join()
    tick(daemon, services)
    [backfill] = daemon.instance.get_backfills()
    assert backfill.backfill_id == f"{plan.id}-1"
    assert backfill.tags["kfm/replay"] == plan.id
    data = backfill.get_asset_backfill_data(daemon.asset_graph())
    assert {key.path[-1] for key in data.target_subset.asset_keys} == set(STAGES)
    with replays.lock_replay(services.database, plan.id) as mine:
        assert mine
        assert advance(services, plan.id, daemon) is None
        assert tick(daemon, services) == f"replay {plan.id}: another process is advancing it"
        with replays.lock_replay(services.database, plan.id) as others:
            assert not others
        with pytest.raises(ReplayRefused, match="another process is running replay"):
            run_in_process(services, plan.id, daemon, sleep=lambda _: None)
    commands.cancel(services, plan.id, "ana", daemon)
    assert status_of(daemon, f"{plan.id}-1") is BulkActionStatus.CANCELING
    assert [one["batch"] for one in tables.batches_of(services.database, plan.id)] == [1]
    end_backfill(daemon, f"{plan.id}-1", BulkActionStatus.CANCELED)
    tick(daemon, services)
    assert tick(daemon, services) == "no replay is active"


def test_a_step_that_fails_is_reported_without_its_message(
    published: Site, daemon: DaemonBatchRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(published, 1)
    start_untried(published, plan.id, here=False)
    monkeypatch.setattr(jobs, "advance", lambda *_: dict[str, str]()["38.79812345"])
    assert tick(daemon, published.services) == f"replay {plan.id}: KeyError"


@pytest.mark.slow
def test_another_process_takes_over_without_repeating_what_is_done(
    published: Site, daemon: DaemonBatchRunner, local: LocalBatchRunner
) -> None:
    """`--here` dies in a batch; the daemon continues, its backfill is cancelled in Dagster, and the rest runs here."""
    site, services = published, published.services
    keys = [site.key(hour) for hour in range(HOURS)]
    plan = planned(site, HOURS)
    commands.start(services, plan.id, ReplayTerms(here=True, canary=1), "ana")
    batch = tables.create_batch(services.database, plan.id, HOURS, "kfm")
    assert batch is not None
    [run] = local._plan_runs(site.dataset, batch)
    local._execute(site.dataset, batch, replace(run, keys=run.keys[:2]))

    commands.resume(services, plan.id, "bo", here=False)
    assert tick(daemon, services).endswith("is running")
    backfill = daemon.instance.get_backfill(f"{plan.id}-1")
    assert backfill is not None
    target = backfill.get_asset_backfill_data(daemon.asset_graph()).target_subset
    assert {one.partition_key for one in target.iterate_asset_partitions()} == set(keys[2:])

    end_backfill(daemon, f"{plan.id}-1", BulkActionStatus.CANCELED)
    assert tick(daemon, services).endswith(f"is paused: its backfill {plan.id}-1 was cancelled in Dagster")
    assert {one.attempts for one in tables.keys_of(services.database, plan.id)} == {0}
    commands.resume(services, plan.id, "bo", here=True)
    assert run_in_process(services, plan.id, local, sleep=lambda _: None).replay.state == "done"
    assert outcomes(site, plan.id) == {key: ["SKIPPED"] for key in keys}


@pytest.mark.slow
def test_a_backfill_without_a_daemon_is_cancelled_and_run_here(
    published: Site, daemon: DaemonBatchRunner, local: LocalBatchRunner
) -> None:
    services, keys = published.services, [published.key(hour) for hour in range(2)]
    plan = planned(published, 2)
    start_untried(published, plan.id, here=False)
    tick(daemon, services)
    assert status_of(daemon, f"{plan.id}-1") is BulkActionStatus.REQUESTED

    assert run_in_process(services, plan.id, local, sleep=lambda _: None).replay.state == "done"

    assert key_states(published, plan.id) == dict.fromkeys(keys, "done")
    assert outcomes(published, plan.id) == {key: ["SKIPPED"] for key in keys}
    assert status_of(daemon, f"{plan.id}-1") is BulkActionStatus.CANCELED


def test_waiting_for_capacity_reaps_dead_runs_and_ends_with_a_pause(
    published: Site, daemon: DaemonBatchRunner, definitions: dg.Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(published, 1)
    start_untried(published, plan.id)
    reaped: list[object] = []

    def pause_after_three(_: float) -> None:
        if len(reaped) == 3:
            commands.pause(published.services, plan.id, "bo")
        assert len(reaped) < 5

    monkeypatch.setattr(jobs, "reap", lambda *_: reaped.append(1))
    monkeypatch.setattr(RunCapacity, "fits", lambda *_: False)
    runner = LocalBatchRunner(daemon.instance, published.services, definitions, sleep=pause_after_three)
    assert run_in_process(published.services, plan.id, runner).replay.state == "paused"
    assert outcomes(published, plan.id) == {}


def test_a_daemon_without_a_recent_heartbeat_does_not_count(daemon: DaemonBatchRunner) -> None:
    """Dagster itself would trust it for half an hour."""
    for age, is_there in ((-3600, True), (240, False)):
        for kind in DAEMONS:
            beat = DaemonHeartbeat(timestamp=time.time() - age, daemon_type=kind, daemon_id="d", errors=[])
            daemon.instance.add_daemon_heartbeat(beat)
        if is_there:
            refuse_without_daemon(daemon.instance)
        else:
            with pytest.raises(ReplayRefused, match="no Dagster daemon is running"):
                refuse_without_daemon(daemon.instance)
