"""What happens around a replay: others cancel, kill, change and hold things, and processes die. None of it is a failure
of its keys, and none of it makes a key be done twice or never."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from dagster._core.execution.backfill import BulkActionStatus
from dagster._daemon.types import DaemonHeartbeat

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.kill_switch.switch import kill, unkill
from kfm_pipelines.operations.replay import advance as carrying_on
from kfm_pipelines.operations.replay import backfills, batches, commands
from kfm_pipelines.operations.replay import keys as replay_keys
from kfm_pipelines.operations.replay.advance import advance
from kfm_pipelines.operations.replay.backfills import (
    DAEMONS,
    DaemonBatchRunner,
    LocalBatchRunner,
    refuse_without_daemon,
    tick,
)
from kfm_pipelines.operations.replay.status import read_replay_status
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import ReplayTerms
from kfm_pipelines_tests.fixtures.runs.replay import (
    DATASET,
    begun_untried,
    carried_on,
    close_windows,
    declare,
    key_states,
    moves,
    outcomes,
    planned,
    published_hours,
    records,
)
from kfm_pipelines_tests.fixtures.sites.site import Site


@pytest.fixture
def daemon(site: Site) -> Iterator[DaemonBatchRunner]:
    """Backfills are asked for, and nobody carries them out."""
    graph = build_definitions(site.services.settings.resources).resolve_asset_graph()
    with open_instance() as instance:
        yield DaemonBatchRunner(instance, lambda: graph)


def in_this_process(site: Site, daemon: DaemonBatchRunner) -> LocalBatchRunner:
    return LocalBatchRunner(daemon.instance, site.services, build_definitions(site.services.settings.resources))


def attempts(site: Site, replay: str) -> set[int]:
    return {one.attempts for one in replay_keys.keys_of(site.services.database, replay)}


def status_of(daemon: DaemonBatchRunner, backfill: str) -> BulkActionStatus:
    found = daemon.instance.get_backfill(backfill)
    assert found is not None
    return found.status


def ended(daemon: DaemonBatchRunner, backfill: str, status: BulkActionStatus) -> None:
    found = daemon.instance.get_backfill(backfill)
    assert found is not None
    daemon.instance.update_backfill(found.with_status(status))  # type: ignore[no-untyped-call]


def test_what_dies_in_one_process_is_taken_up_by_another_without_what_is_done(
    site: Site, daemon: DaemonBatchRunner
) -> None:
    """`--here` dies in a batch; the daemon goes on, is cancelled in Dagster, and the rest is done here."""
    keys = published_hours(site, 4)
    plan = planned(site, 4)
    services = site.services
    commands.start(services, plan.id, ReplayTerms(here=True), "ana")
    batch = batches.create_batch(services.database, plan.id, 4, "kfm")
    assert batch is not None
    hands = in_this_process(site, daemon)
    [run] = hands._plan_runs(site.dataset, batch)  # as far as it came
    hands._execute(site.dataset, batch, replace(run, keys=run.keys[:2]))

    commands.resume(services, plan.id, "bo", here=False)
    assert tick(daemon, services).endswith("is running")
    backfill = daemon.instance.get_backfill(f"{plan.id}-1")
    assert backfill is not None
    target = backfill.get_asset_backfill_data(daemon._asset_graph()).target_subset
    assert {one.partition_key for one in target.iterate_asset_partitions()} == set(keys[2:])

    ended(daemon, f"{plan.id}-1", BulkActionStatus.CANCELED)
    assert tick(daemon, services).endswith(f"is paused: its backfill {plan.id}-1 was cancelled in Dagster")
    assert attempts(site, plan.id) == {0}
    commands.resume(services, plan.id, "bo", here=True)
    assert carried_on(site, plan.id).state == "done"
    assert outcomes(site, plan.id) == {key: ["SKIPPED"] for key in keys}


def test_a_cancel_in_the_middle_of_a_step_starts_nothing(
    site: Site, daemon: DaemonBatchRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was under way by then is told nevertheless."""
    [key] = published_hours(site, 1)
    early, late, told = (planned(site, 1).id for _ in range(3))
    services = site.services
    for one in (early, late, told):
        begun_untried(site, one, here=False)
    hindrance, ask = carrying_on._config_change_note, DaemonBatchRunner.submit

    def cancelled_before(*arguments: object) -> None:
        commands.cancel(services, early, "cy", daemon)

    monkeypatch.setattr(carrying_on, "_config_change_note", cancelled_before)
    assert advance(services, early, daemon).replay.state == "cancelled"  # type: ignore[union-attr]
    monkeypatch.setattr(carrying_on, "_config_change_note", hindrance)
    assert batches.batches_of(services.database, early) == []

    def cancelled_within(self: DaemonBatchRunner, *arguments: object) -> None:
        commands.cancel(services, late, "cy", daemon)
        ask(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DaemonBatchRunner, "submit", cancelled_within)
    assert advance(services, late, daemon).replay.state == "cancelled"  # type: ignore[union-attr]
    monkeypatch.setattr(DaemonBatchRunner, "submit", ask)
    assert [one.status for one in daemon.instance.get_backfills()] == [BulkActionStatus.CANCELING]
    ended(daemon, f"{late}-1", BulkActionStatus.CANCELED)

    advance(services, told, daemon)
    batch = batches.find_open_batch(services.database, told)
    assert batch is not None
    commands.cancel(services, told, "cy", daemon)
    hands = in_this_process(site, daemon)
    [run] = hands._plan_runs(site.dataset, batch)  # the run was under way
    hands._execute(site.dataset, batch, run)
    assert read_replay_status(services, told).outcomes == {"SKIPPED": 1}
    assert [(one["key"], one["outcome"]) for one in records(site, told)] == [(key, "SKIPPED")]
    ended(daemon, f"{told}-1", BulkActionStatus.CANCELED)
    tick(daemon, services)
    assert tick(daemon, services) == "no replay is under way"
    assert site.fetch("SELECT * FROM kfm.replay_batches WHERE ended_at IS NULL") == []


def test_another_configuration_or_none_pauses_an_upgrade(
    site: Site, daemon: DaemonBatchRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_hours(site, 1)
    declare(site, key={"transform_version": "v1-0-1"})
    plan = planned(site, 1, "upgrade")
    commands.start(site.services, plan.id, ReplayTerms(canary=1, batch=7), "ana")
    [started] = [one for one in replays.moves_of(site.services.database, plan.id) if one["what"] == "started"]
    assert (started["detail"]["canary"], started["detail"]["batch"]) == (1, 7)
    monkeypatch.setattr(backfills, "advance", lambda *_: dict[str, str]()["nothing"])
    assert tick(daemon, site.services) == f"replay {plan.id}: KeyError"
    monkeypatch.undo()
    declare(site, title="Another title")
    assert tick(daemon, site.services).endswith(
        "is paused: declaration changed since it was planned; change it back and resume it, or plan it again"
    )
    assert daemon.instance.get_backfills() == []


def test_keys_are_not_blamed_for_a_kill_or_for_runs_that_never_began(site: Site, daemon: DaemonBatchRunner) -> None:
    keys = published_hours(site, 2)
    plan = planned(site, 2)
    services = site.services
    begun_untried(site, plan.id, max_attempts=1)
    batch = batches.create_batch(services.database, plan.id, 2, "kfm")
    assert batch is not None
    hands = in_this_process(site, daemon)
    kill(services, DATASET, "eve", "a leak")
    hands.submit(site.dataset, batch)
    unkill(services, DATASET, "eve", "over")
    advance(services, plan.id, hands)
    assert attempts(site, plan.id) == {0}
    assert ("batch-fruitless", "kfm") in moves(site, plan.id)
    assert carried_on(site, plan.id).note == "2 keys done"
    assert outcomes(site, plan.id)[keys[0]][-1] == "SKIPPED"

    plan = planned(site, 2)
    begun_untried(site, plan.id, here=False, max_attempts=1)
    for number in range(1, 4):
        tick(daemon, services)
        ended(daemon, f"{plan.id}-{number}", BulkActionStatus.COMPLETED_FAILED)
    why = f"their runs say why, the first is that of {keys[0]}"
    assert tick(daemon, services).endswith(
        f"is paused: its last 3 batches ended and none of their keys was worked on; {why}"
    )
    assert set(key_states(site, plan.id).values()) == {"waiting"}
    assert attempts(site, plan.id) == {0}


def test_whoever_waits_for_room_looks_around(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    published_hours(site, 1)
    plan = planned(site, 1)
    begun_untried(site, plan.id)
    reaped: list[object] = []

    class Full:
        def fits(self, _: object) -> bool:
            return False

    def nap(_: float) -> None:
        if len(reaped) == 3:
            commands.pause(site.services, plan.id, "bo")
        assert len(reaped) < 5

    monkeypatch.setattr(backfills, "reap", lambda *_: reaped.append(1))
    monkeypatch.setattr(LocalBatchRunner, "_read_capacity", lambda _: Full())
    monkeypatch.setattr(time, "sleep", nap)
    assert carried_on(site, plan.id).state == "paused"
    monkeypatch.undo()
    commands.resume(site.services, plan.id, "bo", here=True)
    assert carried_on(site, plan.id).note == "1 keys done"


def test_keys_without_data_are_no_evidence_and_are_counted(site: Site) -> None:
    for hour in range(3):
        site.put(hour)
    site.drain()
    close_windows(site)
    site.services.database.execute("UPDATE kfm.keys SET due_at = NULL")
    site.services.database.execute(
        """
        INSERT INTO kfm.late (identity, key, dataset, rule, state)
        SELECT identity, key, dataset, 'quarantine', 'held' FROM kfm.inbox
        """
    )
    plan = planned(site, 3, "upgrade")
    with pytest.raises(ReplayRefused, match="at least one key is tried first"):
        commands.start(site.services, plan.id, ReplayTerms(canary=0), "ana")
    assert commands.start(site.services, plan.id, ReplayTerms(), "ana") == []
    stopped = replays.read(site.services.database, plan.id)
    assert (stopped.state, stopped.note) == (
        "stopped", "none of its keys has an object that counts, so nothing speaks for it",
    )  # fmt: skip

    site.services.database.execute("UPDATE kfm.late SET state = 'released' WHERE key = %(key)s", {"key": site.key(2)})
    plan = planned(site, 3, "upgrade")
    tried = commands.start(site.services, plan.id, ReplayTerms(here=True, canary=1), "ana")
    assert [one.key for one in tried] == [site.key(2)]
    assert carried_on(site, plan.id).note == "3 keys done, 2 of them without data"
    assert read_replay_status(site.services, plan.id).without_data == 2


def test_what_a_daemon_left_behind_is_done_here(site: Site, daemon: DaemonBatchRunner) -> None:
    keys = published_hours(site, 2)
    plan = planned(site, 2)
    commands.start(site.services, plan.id, ReplayTerms(canary=1), "ana")
    tick(daemon, site.services)
    assert status_of(daemon, f"{plan.id}-1") is BulkActionStatus.REQUESTED

    assert carried_on(site, plan.id).state == "done"

    assert key_states(site, plan.id) == dict.fromkeys(keys, "done")
    assert outcomes(site, plan.id) == {key: ["SKIPPED"] for key in keys}
    assert status_of(daemon, f"{plan.id}-1") is BulkActionStatus.CANCELED


def test_a_daemon_that_has_fallen_silent_is_none(daemon: DaemonBatchRunner) -> None:
    """By itself Dagster would count on it for half an hour."""
    for age, is_there in ((20, True), (240, False)):
        for kind in DAEMONS:
            beat = DaemonHeartbeat(timestamp=time.time() - age, daemon_type=kind, daemon_id="d", errors=[])
            daemon.instance.add_daemon_heartbeat(beat)
        if is_there:
            refuse_without_daemon(daemon.instance)
        else:
            with pytest.raises(ReplayRefused, match="no Dagster daemon is at work"):
                refuse_without_daemon(daemon.instance)
