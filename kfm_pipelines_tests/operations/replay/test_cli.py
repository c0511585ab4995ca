"""`kfm replay` as people and programs use it."""

import json
import signal
import tempfile
from datetime import timedelta

import pytest

from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.runs.replay import (
    carried_on,
    close_windows,
    moves,
    outcomes,
    planned,
    published_hours,
)
from kfm_pipelines_tests.fixtures.sites.command import RUN, kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import START, Site

RANGE = ("--dataset", "usgs/streamflow", "--from", "2025-12-04", "--to", "2025-12-04T06:00Z")


def refused(site: Site, *arguments: str) -> str:
    said = kfm(site.environment, "replay", *arguments)
    assert said.code in (1, 2), said.out
    assert "Traceback" not in said.err
    return " ".join(said.err.split())


@pytest.mark.slow
def test_a_replay_from_the_plan_to_its_end(site: Site) -> None:
    published_hours(site, 3)
    shown = kfm(site.environment, "replay", "plan", *RANGE, "--by", "ana").out
    assert "reproduce 3 keys of usgs/streamflow" in shown
    assert "published, revision 1" in shown
    assert "estimated cost: CPU time " in shown
    assert "g CO2e (from 3 measured keys)" in " ".join(shown.split())
    assert "configuration: " in shown
    plan = kfm(site.environment, "replay", "plan", *RANGE, "--by", "ana", "--json").json
    assert [one["key"] for one in plan["keys"]] == [site.key(hour) for hour in range(3)]
    assert min(plan["estimate"][name] for name in ("cpu_seconds", "energy_ws", "carbon_grams", "cost_usd")) > 0
    name = plan["replay"]
    assert f"configuration: {plan['config_digest']}" in shown

    assert "no Dagster daemon is at work" in refused(site, "run", name)
    assert "is planned, so it cannot be paused" in refused(site, "pause", name)
    boxed = kfm(site.environment, "replay", "run", name, "--here", "--time-box", "0s", "--by", "bo", "--json").json
    assert (boxed["state"], boxed["decided"]) == ("paused", 0)
    assert [one["identical"] for one in boxed["canary"]] == [True, True, True]
    assert "is paused (its time box of 0 s is over), so it cannot be started" in refused(site, "run", name, "--here")
    site.services.database.execute("UPDATE kfm.replays SET plan = jsonb_set(plan, '{terms,time_box_seconds}', 'null')")
    site.services.database.execute("UPDATE kfm.replays SET state = 'running' WHERE id = %(id)s", {"id": name})
    assert "under its own terms, without --batch, --max-attempts" in refused(
        site, "run", name, "--here", "--max-attempts", "2", "--batch", "5"
    )

    done = kfm(site.environment, "replay", "resume", name, "--here", "--by", "bo")

    assert done.code == 0, done.err
    assert "[##############################] 3 of 3 keys" in done.out
    assert "3 skipped" in done.out
    assert "usgs/streamflow, 2025-12-04 00:00Z to 2025-12-04 06:00Z" in done.out
    assert f"replay {name}: 3 of 3" in done.err
    status = kfm(site.environment, "replay", "status", name, "--json").json
    assert (status["state"], status["outcomes"]) == ("done", {"SKIPPED": 3})
    assert status["energy_ws_estimated"] > 0
    assert [(one["what"], one["actor"]) for one in status["moves"]][:3] == [
        ("planned", "ana"), ("started", "bo"), ("canary-good", "kfm"),
    ]  # fmt: skip
    listed = kfm(site.environment, "replay", "status").out
    assert name in listed
    assert "3 of 3" in listed
    assert "is done (3 keys done), so it cannot be cancelled" in refused(site, "cancel", name)


@pytest.mark.slow
def test_history_in_the_bucket_is_registered_and_what_is_red_is_told(site: Site) -> None:
    site.put(0)
    site.put(1, b"not a table")
    site.put(2)
    close_windows(site, START + timedelta(hours=6))
    registered = kfm(site.environment, "replay", "plan", *RANGE, "--register", "--by", "ana", "--json").json
    assert registered["registered"] == {"objects": 3, "events": 3, "windows": 6, "new_keys": 6}
    assert registered["mode"] == "upgrade"
    assert (registered["estimate"]["cpu_seconds"], registered["estimate"]["energy_ws"]) == (None, None)
    plan = registered
    assert {one["why"] for one in plan["keys"]} == {"registered, not run"}
    assert len(plan["left_out"]) == 3
    run = kfm(site.environment, "replay", "run", plan["replay"], "--here", "--json", "--by", "ana")
    assert run.code == 1
    stopped = json.loads(run.out)
    assert stopped["state"] == "stopped"
    assert f"1 of the first 3 keys are not good: {site.key(1)}: " in stopped["note"]
    assert site.fetch("SELECT * FROM kfm.revisions") == []

    plan = kfm(site.environment, "replay", "plan", *RANGE, "--mode", "upgrade", "--by", "ana", "--json").json
    run = kfm(site.environment, "replay", "run", plan["replay"], "--here", "--canary", "1", "--max-attempts", "1",
              "--by", "ana")  # fmt: skip
    assert run.code == 1
    assert "2 applied, 1 failed" in run.out
    assert f"quarantine {site.key(1)} after 1 attempts" in run.out


@pytest.mark.slow
def test_an_interrupt_pauses_what_this_process_carries_out(site: Site) -> None:
    keys = published_hours(site, 4)
    plan = planned(site, 4)
    run = [*RUN, "replay", "run", plan.id, "--here", "--batch", "1", "--canary", "1", "--by", "bo"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Forked(run, env=site.environment, stdout=out, stderr=err)
        assert eventually(lambda: outcomes(site, plan.id), seconds=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        err.seek(0)
        said = err.read().decode()
    assert f"go on with `kfm replay resume {plan.id} --here`" in said
    assert "Traceback" not in said
    assert moves(site, plan.id)[-1] == ("paused", "bo")
    assert len(outcomes(site, plan.id)) < 4
    assert carried_on(site, plan.id).state == "paused"
    assert kfm(site.environment, "replay", "resume", plan.id, "--here", "--json").json["outcomes"] == {"SKIPPED": 4}
    assert outcomes(site, plan.id) == {key: ["SKIPPED"] for key in keys}


def test_what_makes_no_sense_is_refused_in_one_sentence(untouched: Site) -> None:
    site = untouched
    assert "no key of usgs/streamflow is known" in refused(site, "plan", *RANGE)
    assert "is not declared" in refused(site, "plan", "--dataset", "no/such", *RANGE[2:])
    assert "is no time" in refused(site, "plan", "--dataset", "usgs/streamflow", "--from", "now", "--to", "2025-01-01")
    backwards = ("--dataset", "usgs/streamflow", "--from", "2025-12-05", "--to", "2025-12-04")
    assert "nothing begins from" in refused(site, "plan", *backwards)
    assert "is no condition" in refused(site, "plan", *RANGE, "--where", "colour=red")
    assert "tolerances are for --mode upgrade" in refused(site, "plan", *RANGE, "--rows-percent", "1")
    for command in ("run", "status", "pause", "resume", "cancel"):
        assert "there is no replay 'r0'" in refused(site, command, "r0")
    assert "neither a number of keys nor a share" in refused(site, "run", "r0", "--canary", "some")
    for none in ("0", "0%", "0.0%"):
        assert "at least one key is tried first" in refused(site, "run", "r0", "--canary", none)
    for option in ("--rate", "--quarantine-percent"):
        assert "'nan' is no number" in refused(site, "run", "r0", option, "nan")
    assert "'nan' is no number" in refused(site, "plan", *RANGE, "--mode", "upgrade", "--rows-percent", "nan")
    assert kfm(site.environment, "replay", "status", "--json").json == {"replays": []}
