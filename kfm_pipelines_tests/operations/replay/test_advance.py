"""A replay runs every key once, as often as agreed and no faster; what happens around it is no failure of its keys."""

import shutil
from datetime import timedelta

import pytest

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.kill_switch.switch import kill, unkill
from kfm_pipelines.operations.replay import advance as advance_module
from kfm_pipelines.operations.replay import commands, tables
from kfm_pipelines.operations.replay.advance import BatchStatus, ReplayStep, advance, rate_delay
from kfm_pipelines.operations.replay.status import read_replay_status
from kfm_pipelines.operations.replay.tables import ReplayBatch
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import ReplayTerms
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.runs.replay import (
    DATASET,
    PUBLISHED,
    DirectRunner,
    close_windows,
    declare,
    finished,
    key_states,
    moves,
    outcomes,
    planned,
    published_hours,
    records,
    start_untried,
    started,
)
from kfm_pipelines_tests.fixtures.sites.site import Site

RECORD_FIELDS = {
    "replay_id", "key", "outcome", "previous_attempts", "validation_fail_reason", "cpu_seconds", "energy_method",
    "energy_cost_ws", "carbon_grams_estimated", "cost_usd_estimated",
}  # fmt: skip


class IdleRunner(DirectRunner):
    """Accepts batches, finishes them and works on none of their keys."""

    def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
        self.submitted.add(batch.backfill)


def step(site: Site, replay: str, runner: DirectRunner) -> ReplayStep:
    taken = advance(site.services, replay, runner)
    assert taken is not None
    return taken


def attempts(site: Site, replay: str) -> set[int]:
    return {one.attempts for one in tables.keys_of(site.services.database, replay)}


def registered(site: Site, hours: int, *bad: int) -> None:
    """Objects of these hours that are known and not run, in closed windows."""
    for hour in range(hours):
        site.put(hour, spoiled(hour) if hour in bad else None)
    site.drain()
    close_windows(site)
    site.services.database.execute("UPDATE kfm.keys SET due_at = NULL")


@pytest.mark.slow
def test_history_comes_back_byte_for_byte_into_an_empty_store(site: Site) -> None:
    keys = published_hours(site, 3)
    tree = site.tree(*PUBLISHED)
    for folder in PUBLISHED:
        shutil.rmtree(site.data / folder)
    plan = planned(site, 3)

    replay = started(site, plan.id, batch=2)

    assert (replay.state, replay.note) == ("done", "3 keys done")
    assert site.tree(*PUBLISHED) == tree
    assert outcomes(site, plan.id) == {key: ["APPLIED"] for key in keys}
    assert site.fetch("SELECT DISTINCT revision FROM kfm.revisions") == [{"revision": 1}]
    by = [("planned", "ana"), ("started", "ana"), ("canary-good", "kfm"), ("batch-asked", "kfm"),
          ("batch-asked", "kfm"), ("done", "kfm")]  # fmt: skip
    assert moves(site, plan.id) == by

    again = planned(site, 3)
    assert again.estimate.measured_keys == 3
    assert again.estimate.cpu_seconds is not None
    assert again.estimate.energy_ws is not None
    started(site, again.id)
    assert outcomes(site, again.id) == {key: ["SKIPPED"] for key in keys}
    assert site.tree(*PUBLISHED) == tree
    assert [one["key"] for one in records(site, again.id)] == keys
    _records_are_complete(site, again.id)


def _records_are_complete(site: Site, replay: str) -> None:
    written = records(site, replay)
    assert set(written[0]) == RECORD_FIELDS
    assert {(one["replay_id"], one["outcome"], one["previous_attempts"]) for one in written} == {(replay, "SKIPPED", 0)}
    for one in written:
        [entered] = site.fetch(
            f"""
            SELECT sum(cpu_seconds) AS cpu_seconds, sum(watt_seconds) AS energy_cost_ws,
                   sum(carbon_grams) AS carbon_grams_estimated, count(DISTINCT stage) AS stages
            FROM kfm.energy WHERE replay = '{replay}' AND key = '{one["key"]}'
            """
        )
        assert entered.pop("stages") == 6  # all five stages and the canary
        assert {name: one[name] for name in entered} == {name: pytest.approx(entered[name]) for name in entered}
        assert one["energy_method"] == "estimated"
    kept = site.fetch(f"SELECT telemetry FROM kfm.replay_keys WHERE replay = '{replay}' ORDER BY place")
    assert [row["telemetry"] for row in kept] == written


@pytest.mark.slow
def test_a_red_key_is_tried_as_often_as_agreed_and_then_set_aside(site: Site) -> None:
    registered(site, 3, 2)
    plan = planned(site, 3, "upgrade")

    replay = started(site, plan.id, canary=1, max_attempts=2, quarantine_percent=50)

    assert (replay.state, replay.note) == ("done", "2 keys done, 1 in quarantine")
    assert key_states(site, plan.id)[site.key(2)] == "quarantined"
    found = outcomes(site, plan.id)
    assert found[site.key(2)] == ["FAILED", "FAILED"]
    assert found[site.key(0)] == ["FAILED", "APPLIED"]  # handed back once because of the red one
    written = {one["key"]: one for one in records(site, plan.id)}
    red, neighbour = written[site.key(2)], written[site.key(0)]
    assert (red["outcome"], red["previous_attempts"]) == ("FAILED", 2)
    assert "qa gate" in str(red["validation_fail_reason"])
    assert (neighbour["previous_attempts"], neighbour["validation_fail_reason"]) == (0, None)
    assert ("key-quarantined", "kfm") in moves(site, plan.id)
    assert site.fetch("SELECT key FROM kfm.dead_letters WHERE state = 'open'") == [{"key": site.key(2)}]


@pytest.mark.slow
def test_a_replay_stops_when_nothing_succeeds(site: Site) -> None:
    registered(site, 6, *range(6))
    plan = planned(site, 6, "upgrade")
    start_untried(site, plan.id, batch=5)
    replay = finished(site, plan.id)
    assert replay.state == "stopped"
    assert replay.note.startswith("none of the first 5 keys succeeded; the last one:")
    assert site.tree(*PUBLISHED) == {}
    assert set(key_states(site, plan.id).values()) == {"waiting"}
    with pytest.raises(ReplayRefused, match=r"is stopped .*, so it cannot be resumed"):
        commands.resume(site.services, plan.id, "ana", here=True)


@pytest.mark.slow
def test_a_replay_is_paused_resumed_limited_in_time_killed_and_cancelled(published: Site) -> None:
    site, services, runner = published, published.services, DirectRunner(published.services)
    keys = [site.key(hour) for hour in range(4)]
    plan = planned(site, 4)
    commands.start(services, plan.id, ReplayTerms(here=True, canary=1, batch=1, time_box_seconds=0.0), "ana")
    assert finished(site, plan.id).note == "its time box of 0 s is over"
    assert outcomes(site, plan.id) == {}

    services.database.execute("UPDATE kfm.replays SET plan = jsonb_set(plan, '{terms,time_box_seconds}', 'null')")
    commands.resume(services, plan.id, "bo", here=True)
    assert not step(site, plan.id, runner).is_last
    commands.pause(services, plan.id, "bo")
    assert finished(site, plan.id).state == "paused"
    assert list(outcomes(site, plan.id)) == keys[:1]
    assert [one["key"] for one in records(site, plan.id) if one["outcome"]] == keys[:1]

    commands.resume(services, plan.id, "bo", here=True)
    kill(services, DATASET, "eve", "a leak")
    assert finished(site, plan.id).state == "paused"
    with pytest.raises(ReplayRefused, match="is killed by eve"):
        commands.resume(services, plan.id, "bo", here=True)
    unkill(services, DATASET, "eve", "over")

    commands.resume(services, plan.id, "bo", here=True)
    step(site, plan.id, runner)
    assert commands.cancel(services, plan.id, "cy", runner).state == "cancelled"
    assert finished(site, plan.id).state == "cancelled"
    assert list(outcomes(site, plan.id)) == keys[:2]
    with pytest.raises(ReplayRefused, match="is cancelled"):
        commands.pause(services, plan.id, "bo")
    assert [one for one in moves(site, plan.id) if one[1] != "kfm"] == [
        ("planned", "ana"), ("started", "ana"), ("resumed", "bo"), ("paused", "bo"), ("resumed", "bo"),
        ("resumed", "bo"), ("cancelled", "cy"),
    ]  # fmt: skip


def test_a_rate_sets_the_wait_after_a_batch() -> None:
    assert rate_delay(2.0, keys=2, seconds=0.0) == 60.0
    assert rate_delay(2.0, keys=2, seconds=45.0) == 15.0
    assert rate_delay(2.0, keys=2, seconds=61.0) == 0.0
    assert rate_delay(None, keys=200, seconds=0.0) == 0.0


def test_batches_come_no_faster_than_agreed(published: Site) -> None:
    site, services, runner = published, published.services, DirectRunner(published.services)
    plan = planned(site, 3)
    start_untried(site, plan.id, rate=2.0)
    first = step(site, plan.id, runner)
    assert (first.wait_seconds, len(outcomes(site, plan.id))) == (0.0, 2)
    [batch] = tables.batches_of(services.database, plan.id)
    for elapsed, wait in ((0, 60.0), (45, 15.0)):
        later = advance(services, plan.id, runner, now=batch["asked_at"] + timedelta(seconds=elapsed))
        assert later is not None
        assert later.wait_seconds == pytest.approx(wait)
        assert len(outcomes(site, plan.id)) == 2
    advance(services, plan.id, runner, now=batch["asked_at"] + timedelta(seconds=60))
    assert len(outcomes(site, plan.id)) == 3
    assert finished(site, plan.id).state == "done"


def test_a_plan_is_not_started_under_another_configuration(published: Site) -> None:
    plan = planned(published, 3)
    suite = published.services.settings.resources / "expectations/usgs-streamflow.json"
    text = suite.read_text()
    suite.write_text(text + "\n")
    try:
        with pytest.raises(ReplayRefused, match="another configuration: suites changed since"):
            commands.start(published.services, plan.id, ReplayTerms(), "ana")
    finally:
        suite.write_text(text)


@pytest.mark.slow
def test_another_configuration_pauses_an_upgrade(site: Site) -> None:
    published_hours(site, 1)
    declare(site, key={"transform_version": "v1-0-1"})
    plan = planned(site, 1, "upgrade")
    commands.start(site.services, plan.id, ReplayTerms(canary=1, batch=7), "ana")
    [first] = [one for one in replays.moves_of(site.services.database, plan.id) if one["what"] == "started"]
    assert (first["detail"]["canary"], first["detail"]["batch"]) == (1, 7)
    declare(site, title="Another title")
    paused = step(site, plan.id, DirectRunner(site.services)).replay
    assert (paused.state, paused.note) == (
        "paused", "declaration changed since it was planned; change it back and resume it, or plan it again"
    )  # fmt: skip
    assert tables.batches_of(site.services.database, plan.id) == []


def test_keys_are_not_blamed_for_a_kill_or_for_runs_that_never_began(published: Site) -> None:
    site, services = published, published.services
    plan = planned(site, 2)
    start_untried(site, plan.id, max_attempts=1)
    batch = tables.create_batch(services.database, plan.id, 2, "kfm")
    assert batch is not None
    runner = DirectRunner(services)
    kill(services, DATASET, "eve", "a leak")
    runner.submit(site.dataset, batch)
    unkill(services, DATASET, "eve", "over")
    step(site, plan.id, runner)
    assert attempts(site, plan.id) == {0}
    assert ("batch-fruitless", "kfm") in moves(site, plan.id)
    assert finished(site, plan.id).note == "2 keys done"
    assert outcomes(site, plan.id)[site.key(0)][-1] == "SKIPPED"

    plan = planned(site, 2)
    start_untried(site, plan.id, max_attempts=1)
    idle = IdleRunner(services)
    for _ in range(3):
        assert step(site, plan.id, idle).replay.state == "running"
    paused = step(site, plan.id, idle).replay
    assert (paused.state, paused.note) == (
        "paused", "its last 3 batches ended and none of their keys was worked on; their runs say why, the first is "
        f"that of {site.key(0)}",
    )  # fmt: skip
    assert set(key_states(site, plan.id).values()) == {"waiting"}
    assert attempts(site, plan.id) == {0}


@pytest.mark.slow
def test_keys_without_data_are_no_evidence_and_are_counted(site: Site) -> None:
    registered(site, 3)
    site.services.database.execute(
        """
        INSERT INTO kfm.late (identity, key, dataset, rule, state)
        SELECT identity, key, dataset, 'quarantine', 'held' FROM kfm.inbox
        """
    )
    plan = planned(site, 3, "upgrade")
    with pytest.raises(ReplayRefused, match="the canary needs at least 1 key"):
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
    assert finished(site, plan.id).note == "3 keys done, 2 of them without data"
    assert read_replay_status(site.services, plan.id).without_data == 2


def test_a_cancel_in_the_middle_of_a_step_starts_nothing(published: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the outcome of a run that had begun is recorded nevertheless."""
    site, services = published, published.services
    early, late, begun = (planned(site, 1).id for _ in range(3))
    for one in (early, late, begun):
        start_untried(site, one)
    cancelled: list[str] = []

    class Cancels(IdleRunner):
        def submit(self, dataset: Dataset, batch: ReplayBatch) -> None:
            commands.cancel(services, batch.replay, "cy", self)
            super().submit(dataset, batch)

        def cancel(self, batch: ReplayBatch) -> None:
            cancelled.append(batch.backfill)

        def status(self, batch: ReplayBatch) -> BatchStatus:
            return BatchStatus.RUNNING

    runner = Cancels(services)

    def cancel_early(*_: object) -> None:
        commands.cancel(services, early, "cy", runner)

    with monkeypatch.context() as patch:
        patch.setattr(advance_module, "_config_change_note", cancel_early)
        assert step(site, early, runner).replay.state == "cancelled"
    assert tables.batches_of(services.database, early) == []

    assert step(site, late, runner).replay.state == "cancelled"
    assert cancelled == [f"{late}-1", f"{late}-1"]  # by the command, and again once the batch was submitted

    start = IdleRunner(services)
    step(site, begun, start)
    batch = tables.find_open_batch(services.database, begun)
    assert batch is not None
    commands.cancel(services, begun, "cy", runner)
    DirectRunner(services).submit(site.dataset, batch)  # its run had begun
    assert read_replay_status(services, begun).outcomes == {"SKIPPED": 1}
    assert [(one["key"], one["outcome"]) for one in records(site, begun)] == [(site.key(0), "SKIPPED")]
    for one in (late, begun):
        step(site, one, start)
    assert site.fetch("SELECT * FROM kfm.replay_batches WHERE ended_at IS NULL") == []
