"""`kfm replay` as people and programs use it."""

import json
import signal
import tempfile
from datetime import timedelta
from typing import Any

import pytest

from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.runs.replay import close_windows, finished, moves, outcomes, planned
from kfm_pipelines_tests.fixtures.sites.command import RUN, CommandResult, run_kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import START, Site

RANGE = ("--dataset", "usgs/streamflow", "--from", "2025-12-04", "--to", "2025-12-04T06:00Z")


def replay(*arguments: str, code: int = 0) -> CommandResult:
    answer = run_kfm("replay", *arguments)
    assert answer.code == code, answer.err
    return answer


def document(*arguments: str, code: int = 0) -> Any:
    return json.loads(replay(*arguments, "--json", code=code).out)


def refusal(*arguments: str) -> str:
    answer = run_kfm("replay", *arguments)
    assert answer.code in (1, 2), answer.out
    return " ".join(answer.err.split())


@pytest.mark.slow
def test_a_replay_from_the_plan_to_its_end(published: Site) -> None:
    site = published
    displayed = replay("plan", *RANGE, "--by", "ana").out
    assert "reproduce 4 keys of usgs/streamflow" in displayed
    assert "published, revision 1" in displayed
    assert "estimated cost: CPU time " in displayed
    assert "g CO2e (from 4 measured keys)" in displayed
    plan = document("plan", *RANGE, "--by", "ana")
    assert [one["key"] for one in plan["keys"]] == [site.key(hour) for hour in range(4)]
    assert min(plan["estimate"][name] for name in ("cpu_seconds", "energy_ws", "carbon_grams", "cost_usd")) > 0
    name = plan["replay"]
    assert f"configuration: {plan['config_digest']}" in displayed

    assert "no Dagster daemon is running" in refusal("run", name)
    assert "is planned, so it cannot be paused" in refusal("pause", name)
    boxed = document("run", name, "--here", "--canary", "2", "--time-box", "0s", "--by", "bo")
    assert (boxed["state"], boxed["decided"]) == ("paused", 0)
    assert [one["identical"] for one in boxed["canary"]] == [True, True]
    assert "is paused (its time box of 0 s is over), so it cannot be started" in refusal("run", name, "--here")
    site.services.database.execute("UPDATE kfm.replays SET plan = jsonb_set(plan, '{terms,time_box_seconds}', 'null')")
    site.services.database.execute("UPDATE kfm.replays SET state = 'running' WHERE id = %(id)s", {"id": name})
    assert "under its own terms, so --batch, --max-attempts cannot be given" in refusal(
        "run", name, "--here", "--max-attempts", "2", "--batch", "5"
    )

    done = replay("resume", name, "--here", "--by", "bo")

    assert "[##############################] 4 of 4 keys" in done.out
    assert "4 skipped" in done.out
    assert "usgs/streamflow, 2025-12-04 00:00Z to 2025-12-04 06:00Z" in done.out
    assert f"replay {name}: 4 of 4" in done.err
    status = document("status", name)
    assert (status["state"], status["outcomes"]) == ("done", {"SKIPPED": 4})
    assert status["energy_ws_estimated"] > 0
    assert [(one["what"], one["actor"]) for one in status["moves"]][:3] == [
        ("planned", "ana"), ("started", "bo"), ("canary-good", "kfm"),
    ]  # fmt: skip
    listed = replay("status").out
    assert name in listed
    assert "4 of 4" in listed
    assert "is done (4 keys done), so it cannot be cancelled" in refusal("cancel", name)


@pytest.mark.slow
def test_history_in_the_bucket_is_registered_and_red_keys_are_reported(site: Site) -> None:
    site.put(0)
    site.put(1, b"not a table")
    site.put(2)
    close_windows(site, START + timedelta(hours=6))
    plan = document("plan", *RANGE, "--register", "--by", "ana")
    assert plan["registered"] == {"objects": 3, "events": 3, "windows": 6, "new_keys": 6, "due": []}
    assert plan["mode"] == "upgrade"
    assert (plan["estimate"]["cpu_seconds"], plan["estimate"]["energy_ws"]) == (None, None)
    assert {one["why"] for one in plan["keys"]} == {"registered, not run"}
    assert len(plan["left_out"]) == 3
    stopped = document("run", plan["replay"], "--here", "--by", "ana", code=1)
    assert stopped["state"] == "stopped"
    assert f"1 of the first 3 keys are not good: {site.key(1)}: " in stopped["note"]
    assert site.fetch("SELECT * FROM kfm.revisions") == []

    plan = document("plan", *RANGE, "--mode", "upgrade", "--by", "ana")
    options = ("--here", "--canary", "1", "--max-attempts", "1", "--by", "ana")
    displayed = replay("run", plan["replay"], *options, code=1).out
    assert "2 applied, 1 failed" in displayed
    assert f"quarantine {site.key(1)} after 1 attempt:" in displayed


def test_a_layer_whose_only_window_is_open_is_taken_in_without_a_replay(site: Site) -> None:
    site.put(5)
    hour = (*RANGE[:2], "--from", "2025-12-04T05:00Z", *RANGE[4:])
    refused = refusal("plan", *hour, "--register")
    assert "its window is not closed" in refused
    assert refused.endswith("; --include-open takes in what lies in windows that are not closed")
    plan = document("plan", *hour, "--register", "--include-open", "--by", "ana")
    assert plan["replay"] is None
    assert "its window is not closed" in plan["note"]
    assert plan["registered"] == {"objects": 1, "events": 0, "windows": 1, "new_keys": 0, "due": [site.key(5)]}
    assert site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL") == [{"key": site.key(5)}]
    assert "--include-open is about objects found in the bucket; it needs --register" in refusal(
        "plan", *RANGE, "--include-open"
    )


@pytest.mark.slow
def test_an_interrupt_pauses_a_replay_of_this_process(published: Site) -> None:
    site = published
    plan = planned(site, 4)
    run = [*RUN, "replay", "run", plan.id, "--here", "--batch", "1", "--canary", "1", "--by", "bo"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Forked(run, env=site.environment, stdout=out, stderr=err)
        assert eventually(lambda: outcomes(site, plan.id), seconds=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        err.seek(0)
        message = err.read().decode()
    assert f"continue with `kfm replay resume {plan.id} --here`" in message
    assert "Traceback" not in message
    assert moves(site, plan.id)[-1] == ("paused", "bo")
    done = outcomes(site, plan.id)
    assert len(done) < 4
    assert finished(site, plan.id).state == "paused"
    resumed = document("resume", plan.id, "--here")
    assert resumed["outcomes"] == {"SKIPPED": 4}
    assert outcomes(site, plan.id) == {site.key(hour): ["SKIPPED"] for hour in range(4)}


def test_a_request_that_makes_no_sense_is_refused_in_one_sentence(published: Site) -> None:
    other = ("--dataset", "usgs/streamflow", "--from", "2024-12-04", "--to", "2024-12-05")
    assert "no key of usgs/streamflow is known" in refusal("plan", *other)
    assert "is not declared" in refusal("plan", "--dataset", "no/such", *RANGE[2:])
    assert "is not a time" in refusal("plan", "--dataset", "usgs/streamflow", "--from", "now", "--to", "2025-01-01")
    backwards = ("--dataset", "usgs/streamflow", "--from", "2025-12-05", "--to", "2025-12-04")
    assert "is not before --to" in refusal("plan", *backwards)
    assert "is not a condition" in refusal("plan", *RANGE, "--where", "colour=red")
    assert "tolerances are for --mode upgrade" in refusal("plan", *RANGE, "--rows-percent", "1")
    for command in ("run", "status", "pause", "resume", "cancel"):
        assert "there is no replay 'r0'" in refusal(command, "r0")
    assert "neither a number of keys nor a share" in refusal("run", "r0", "--canary", "some")
    for none in ("0", "0%", "0.0%"):
        assert "the canary needs at least 1 key" in refusal("run", "r0", "--canary", none)
    for option in ("--rate", "--quarantine-percent"):
        assert "'nan' is not a number" in refusal("run", "r0", option, "nan")
    assert "'nan' is not a number" in refusal("plan", *RANGE, "--mode", "upgrade", "--rows-percent", "nan")
    assert document("status") == {"replays": []}
