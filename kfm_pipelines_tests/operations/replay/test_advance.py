"""A replay carried out: every key once, as often as it takes, and no more than was agreed."""

import shutil
import threading
from collections.abc import Iterator

import pytest

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.kill_switch.switch import kill, unkill
from kfm_pipelines.operations.replay import commands
from kfm_pipelines.operations.replay.advance import advance
from kfm_pipelines.operations.replay.backfills import DaemonBatchRunner, LocalBatchRunner, tick
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.orchestration.names import STAGES
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import ReplayTerms
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.runs.replay import (
    DATASET,
    PUBLISHED,
    begun_untried,
    carried_on,
    carried_out,
    close_windows,
    key_states,
    moves,
    outcomes,
    planned,
    published_hours,
    records,
)
from kfm_pipelines_tests.fixtures.sites.site import Site


@pytest.fixture
def hands(site: Site) -> Iterator[LocalBatchRunner]:
    with open_instance() as instance:
        yield LocalBatchRunner(instance, site.services, build_definitions(site.services.settings.resources))


def test_history_comes_back_byte_for_byte_into_an_empty_store(site: Site) -> None:
    keys = published_hours(site, 3)
    tree = site.tree(*PUBLISHED)
    for folder in PUBLISHED:
        shutil.rmtree(site.data / folder)
    plan = planned(site, 3)

    replay = carried_out(site, plan.id, batch=2)

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
    carried_out(site, again.id)
    assert outcomes(site, again.id) == {key: ["SKIPPED"] for key in keys}
    assert site.tree(*PUBLISHED) == tree
    told = records(site, again.id)
    assert [one["key"] for one in told] == keys
    assert set(told[0]) == {
        "replay_id", "key", "outcome", "previous_attempts", "validation_fail_reason", "cpu_seconds", "energy_method",
        "energy_cost_ws", "carbon_grams_estimated", "cost_usd_estimated",
    }  # fmt: skip
    assert {(one["replay_id"], one["outcome"], one["previous_attempts"]) for one in told} == {(again.id, "SKIPPED", 0)}
    for one in told:
        [entered] = site.fetch(
            f"""
            SELECT sum(cpu_seconds) AS cpu_seconds, sum(watt_seconds) AS energy_cost_ws,
                   sum(carbon_grams) AS carbon_grams_estimated, count(DISTINCT stage) AS stages
            FROM kfm.energy WHERE replay = '{again.id}' AND key = '{one["key"]}'
            """
        )
        assert entered.pop("stages") == 6  # all five, and being tried before the others
        assert {name: one[name] for name in entered} == {name: pytest.approx(entered[name]) for name in entered}
        assert one["energy_method"] == "estimated"
    kept = site.fetch("SELECT telemetry FROM kfm.replay_keys WHERE state = 'done' ORDER BY changed_at DESC, place")
    assert told[0] in [row["telemetry"] for row in kept]


def test_a_red_key_is_tried_as_often_as_agreed_and_set_aside(site: Site) -> None:
    for hour in range(6):
        site.put(hour, spoiled(hour) if hour == 4 else None)
    site.drain()
    close_windows(site)
    site.services.database.execute("UPDATE kfm.keys SET due_at = NULL")
    plan = planned(site, 6, "upgrade")

    replay = carried_out(site, plan.id, canary=1, max_attempts=2, quarantine_percent=50)

    assert (replay.state, replay.note) == ("done", "5 keys done, 1 in quarantine")
    assert key_states(site, plan.id)[site.key(4)] == "quarantined"
    found = outcomes(site, plan.id)
    assert found[site.key(4)] == ["FAILED", "FAILED"]
    assert found[site.key(0)] == ["FAILED", "APPLIED"]  # handed back once because of the red one
    [red] = [one for one in records(site, plan.id) if one["key"] == site.key(4)]
    assert (red["outcome"], red["previous_attempts"]) == ("FAILED", 2)
    assert "qa gate" in str(red["validation_fail_reason"])
    spared = [one for one in records(site, plan.id) if one["key"] == site.key(0)]
    assert (spared[0]["previous_attempts"], spared[0]["validation_fail_reason"]) == (0, None)
    assert ("key-quarantined", "kfm") in moves(site, plan.id)
    [letter] = site.fetch("SELECT key, state FROM kfm.dead_letters WHERE state = 'open'")
    assert letter["key"] == site.key(4)


def test_it_stops_when_nothing_works(site: Site) -> None:
    for hour in range(7):
        site.put(hour, spoiled(hour))
    site.drain()
    close_windows(site)
    site.services.database.execute("UPDATE kfm.keys SET due_at = NULL")
    plan = planned(site, 7, "upgrade")
    begun_untried(site, plan.id, batch=5)
    replay = carried_on(site, plan.id)
    assert replay.state == "stopped"
    assert replay.note.startswith("none of the first 5 keys succeeded; the last one:")
    assert site.tree(*PUBLISHED) == {}
    assert list(key_states(site, plan.id).values()).count("waiting") == 7
    with pytest.raises(ReplayRefused, match=r"is stopped .*, so it cannot be resumed"):
        commands.resume(site.services, plan.id, "ana", here=True)


def test_paused_resumed_boxed_in_time_killed_and_cancelled(site: Site, hands: LocalBatchRunner) -> None:
    keys = published_hours(site, 4)
    plan = planned(site, 4)
    services = site.services
    commands.start(services, plan.id, ReplayTerms(here=True, batch=1, time_box_seconds=0.0), "ana")
    assert carried_on(site, plan.id).note == "its time box of 0 s is over"
    assert outcomes(site, plan.id) == {}

    services.database.execute("UPDATE kfm.replays SET plan = jsonb_set(plan, '{terms,time_box_seconds}', 'null')")
    commands.resume(services, plan.id, "bo", here=True)
    step = advance(services, plan.id, hands)
    assert step is not None
    assert not step.is_last
    commands.pause(services, plan.id, "bo")
    assert carried_on(site, plan.id).state == "paused"
    assert list(outcomes(site, plan.id)) == keys[:1]
    assert [one["key"] for one in records(site, plan.id) if one["outcome"]] == keys[:1]

    commands.resume(services, plan.id, "bo", here=True)
    kill(services, DATASET, "eve", "a leak")
    assert carried_on(site, plan.id).state == "paused"
    with pytest.raises(ReplayRefused, match="is killed by eve"):
        commands.resume(services, plan.id, "bo", here=True)
    unkill(services, DATASET, "eve", "over")

    commands.resume(services, plan.id, "bo", here=True)
    assert advance(services, plan.id, hands) is not None
    cancelled = commands.cancel(services, plan.id, "cy", hands)
    assert cancelled.state == "cancelled"
    assert carried_on(site, plan.id).state == "cancelled"
    assert list(outcomes(site, plan.id)) == keys[:2]
    with pytest.raises(ReplayRefused, match="is cancelled"):
        commands.pause(services, plan.id, "bo")
    assert [one for one in moves(site, plan.id) if one[1] != "kfm"] == [
        ("planned", "ana"), ("started", "ana"), ("resumed", "bo"), ("paused", "bo"), ("resumed", "bo"),
        ("resumed", "bo"), ("cancelled", "cy"),
    ]  # fmt: skip


def test_no_faster_than_agreed_and_not_under_another_configuration(site: Site, hands: LocalBatchRunner) -> None:
    published_hours(site, 3)
    plan = planned(site, 3)
    commands.start(site.services, plan.id, ReplayTerms(here=True, rate=2.0), "ana")
    first = advance(site.services, plan.id, hands)
    second = advance(site.services, plan.id, hands)
    third = advance(site.services, plan.id, hands)
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.wait_seconds == 0.0
    assert 50 < second.wait_seconds <= 60  # two keys at two a minute
    assert 50 < third.wait_seconds <= second.wait_seconds
    assert len(outcomes(site, plan.id)) == 2
    site.services.database.execute("UPDATE kfm.replay_batches SET asked_at = asked_at - interval '1 minute'")
    assert carried_on(site, plan.id).state == "done"

    other = planned(site, 3)
    path = site.services.settings.resources / "expectations/usgs-streamflow.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(ReplayRefused, match="another configuration: suites changed since"):
        commands.start(site.services, other.id, ReplayTerms(), "ana")


def test_two_at_once_ask_for_each_batch_once(site: Site) -> None:
    """By the daemon's way: backfills are asked for, and nobody carries them out here."""
    published_hours(site, 4)
    plan = planned(site, 4)
    commands.start(site.services, plan.id, ReplayTerms(batch=2), "ana")
    graph = build_definitions(site.services.settings.resources).resolve_asset_graph()
    with open_instance() as instance:
        daemon = DaemonBatchRunner(instance, lambda: graph)
        ticks = [threading.Thread(target=tick, args=(daemon, site.services)) for _ in range(4)]
        for one in ticks:
            one.start()
        for one in ticks:
            one.join()
        tick(daemon, site.services)
        backfills = instance.get_backfills()
        assert [one.backfill_id for one in backfills] == [f"{plan.id}-1"]
        assert backfills[0].tags["kfm/replay"] == plan.id
        data = backfills[0].get_asset_backfill_data(graph)
        assert {key.path[-1] for key in data.target_subset.asset_keys} == set(STAGES)
        with replays.lock_replay(site.services.database, plan.id) as mine:
            assert mine
            assert advance(site.services, plan.id, daemon) is None
            with replays.lock_replay(site.services.database, plan.id) as others:
                assert not others
        commands.cancel(site.services, plan.id, "ana", daemon)
        assert instance.get_backfills()[0].status.value == "CANCELING"
    assert [row["n"] for row in site.fetch("SELECT count(*) AS n FROM kfm.replay_batches")] == [1]
