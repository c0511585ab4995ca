"""Every command of the runbooks is run, in order, and prints what they say."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples.streamflow import streamflow_table
from kfm_pipelines.state.outbox import Sink, request
from kfm_pipelines_tests.fixtures.aws.emulator import set_queue
from kfm_pipelines_tests.fixtures.care.register import KEY, sites, with_reviewer
from kfm_pipelines_tests.fixtures.graph.server import GraphServer
from kfm_pipelines_tests.fixtures.runbook import matches, mentioned, steps_of
from kfm_pipelines_tests.fixtures.runs import replay as replaying
from kfm_pipelines_tests.fixtures.runs.dispatch import parquet, spoiled
from kfm_pipelines_tests.fixtures.runs.letters import refusing, too_large
from kfm_pipelines_tests.fixtures.sites.command import kfm_in_process
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site
from kfm_pipelines_tests.fixtures.stores.full_disk import full_disk

RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks"
Arrangements = dict[str, Callable[[], None]]


def run(site: Site, name: str, names: dict[str, str], before: Arrangements) -> None:
    """Follows a runbook. `before` is what happens to the site before a command, each time it occurs."""
    done = set()
    for step in steps_of((RUNBOOKS / name).read_text()):
        before.get(step.command, lambda: None)()
        done.add(step.command)
        arguments = step.arguments(names)
        if "redrive" in arguments and "--dry-run" not in arguments:
            arguments.append("--work")  # as the page says for a site without a daemon
        result = kfm_in_process(site.environment, *arguments)
        text = result.out + result.err
        assert result.code == step.code, f"{step.command}: {text}"
        for phrase in step.phrases:
            assert matches(text, phrase, names), f"{step.command} does not print {phrase!r}: {text}"
    assert set(before) <= done, f"{name} no longer has the command {set(before) - done}"


def newest_letter(site: Site) -> str:
    return str(site.fetch("SELECT max(id) AS id FROM kfm.dead_letters")[0]["id"])


@pytest.mark.slow
def test_redriving_dead_letters(site: Site) -> None:
    """A failed key, messages refused by a declaration that is then fixed, and two that cannot be fixed."""
    put = site.put(9, data=b"no parquet")
    site.work()
    site.send("rubbish")
    site.drain()
    names = {"KEY": site.key(9), "OTHER": newest_letter(site)}
    strict_settings = ExitStack()
    strict = strict_settings.enter_context(refusing(site))
    too_large(strict, 4)
    strict.drain()
    names["LETTER"] = newest_letter(site)

    def fix() -> None:
        strict_settings.close()
        site.put(9, name=put.object_key.rsplit("/", 1)[1])

    def refuse_another() -> None:
        site.send("more rubbish")
        site.drain()
        names["LETTER"] = newest_letter(site)

    def interrupt() -> None:
        kfm_in_process(site.environment, "dlq", "quarantine", names["LETTER"], "--reason", "as the page says")
        with refusing(site) as again:
            again.put(6)
            again.put(7)
            again.drain()
        names["LETTER"] = newest_letter(site)
        assert kfm_in_process(site.environment, "dlq", "redrive", "--class", "schema", "--wait", "1").code == 1
        names["REDRIVE"] = site.fetch("SELECT id FROM kfm.redrives WHERE state = 'running'")[0]["id"]

    def tick() -> None:
        site.work()

    run(
        site,
        "dlq-redrive.md",
        names,
        {
            "kfm dlq redrive --class schema --canary 3 --limit 50 --rate 5": fix,
            "kfm dlq redrive LETTER --canary 1": refuse_another,
            "kfm dlq list --state redriving": interrupt,
            "kfm status KEY": tick,
        },
    )

    counts = site.fetch("SELECT state, count(*)::int AS n FROM kfm.dead_letters GROUP BY state ORDER BY state")
    assert counts == [{"state": "closed", "n": 7}, {"state": "quarantined", "n": 2}]
    assert site.fetch("SELECT key FROM kfm.wal WHERE outcome = 'APPLIED' GROUP BY key HAVING count(*) > 1") == []
    dates = [path.relative_to(site.data).parts for path in site.data.glob("dlq/*/*/*.json")]
    assert {pipeline for _, pipeline, _, _ in dates} == {"usgs-streamflow", "unrouted"}
    assert f"{site.key(9)}.json" in {name for *_, name in dates}
    assert len(list(site.data.glob("quarantine/unrouted/*/*.json"))) == 2


@pytest.mark.slow
def test_a_spike_of_duplicates(site: Site) -> None:
    """A producer that sends everything ten times, and then a queue with a short visibility timeout."""
    with_reviewer(site)  # otherwise the doctor reports more than the runbook is about
    message = site.s3_message(site.put(0))
    for _ in range(10):
        site.send(message)
    site.work()

    timeouts = iter(["120", "1"])

    def shorten_timeout() -> None:
        set_queue(site.services.queue.name, VisibilityTimeout=next(timeouts))

    run(site, "duplicate-spike.md", {"KEY": site.key(0)}, {"kfm doctor": shorten_timeout})

    status = kfm_in_process(site.environment, "status", "--json").json
    counted = {queue["name"]: (queue["recorded"], queue["duplicates"]) for queue in status["queues"]}
    assert counted[site.services.queue.name] == (1, 10)
    history = kfm_in_process(site.environment, "status", site.key(0), "--json").json
    outcomes = [transition["outcome"] for transition in history["transitions"] if transition["outcome"]]
    assert (outcomes, len(history["revisions"]), len(history["events"])) == (["APPLIED"], 1, 1)


@pytest.mark.slow
def test_reviewing_a_release(site: Site) -> None:
    """One is approved, the next refused, and an exemption is granted and ended."""
    register = with_reviewer(site)
    register.put(sites(register.dataset))
    site.work()
    tomorrow = site.services.today() + timedelta(days=1)
    names = {
        "KEY": KEY,
        "DIGEST": register.waiting().release_digest,
        "MINE": str(register.private_key),
        "TOMORROW": tomorrow.isoformat(),
    }

    def another_release() -> None:
        register.put(sites(register.dataset, condition=["poor"] * 60))
        site.work()
        names["DIGEST"] = register.waiting().release_digest

    def find_exemption() -> None:
        names["EXEMPTION"] = site.fetch("SELECT id FROM kfm.exemptions")[0]["id"]

    run(
        site,
        "review.md",
        names,
        {
            'kfm review reject KEY --digest DIGEST --key MINE --reason "the spring is too near"': another_release,
            "kfm review exemptions": find_exemption,
        },
    )

    assert site.fetch("SELECT revision FROM kfm.revisions") == [{"revision": 1}]
    assert not (site.root / "restricted").exists() or not list((site.root / "restricted").glob("*.html"))


@pytest.mark.slow
def test_a_red_key(site: Site) -> None:
    put = site.put(0, spoiled(0))
    site.work()
    names = {"KEY": site.key(0), "LETTER": newest_letter(site)}

    def fix() -> None:
        site.put(0, name=put.object_key.rsplit("/", 1)[1])

    run(site, "red-key.md", names, {"kfm dlq redrive LETTER": fix})

    assert site.red(site.key(0)) == []
    assert site.fetch("SELECT state FROM kfm.dead_letters") == [{"state": "closed"}]


@pytest.mark.slow
def test_the_kill_switch(site: Site) -> None:
    with_reviewer(site)  # otherwise the doctor reports more than the runbook is about
    site.put(0)
    site.drain()

    run(site, "kill-switch.md", {"KEY": site.key(0)}, {})

    assert site.fetch("SELECT killed FROM kfm.kill_moves ORDER BY id") == [{"killed": True}, {"killed": False}]


@pytest.mark.slow
def test_releasing_late_data(site: Site) -> None:
    """The second file of an hour is made after the watermark has passed it."""
    replaying.declare(site, late="quarantine")
    readings = streamflow_table(START)
    site.put(0, data=parquet(readings.slice(0, 40)))
    for hour in range(1, 10):
        site.put(hour)
    site.work()
    site.put(0, name="late.parquet", data=parquet(readings.slice(40)))
    site.drain()
    [held] = site.fetch("SELECT identity FROM kfm.late WHERE state = 'held'")
    names = {"KEY": site.key(0), "EVENT": held["identity"][:16]}

    def find_replay() -> None:
        names["REPLAY"] = site.fetch("SELECT id FROM kfm.replays")[0]["id"]

    run(site, "late-data-lane.md", names, {"kfm replay run REPLAY --here": find_replay})

    [item] = [json.loads(path.read_text()) for path in site.data.glob(f"catalog/*/items/{site.key(0)}.json")]
    assert item["properties"]["kfm:late_inputs"] == 1
    assert site.fetch("SELECT revision FROM kfm.revisions WHERE key LIKE '%T00Z%' ORDER BY 1")[-1] == {"revision": 2}


@pytest.mark.slow
def test_a_stale_dataset_and_a_lagging_watermark(site: Site) -> None:
    with_reviewer(site)  # otherwise the doctor reports more than the runbook is about
    site.put(0)
    site.drain()

    run(site, "freshness.md", {"KEY": site.key(0)}, {})
    run(site, "watermark-lag.md", {}, {})


@pytest.mark.slow
def test_the_error_budget_and_telemetry(site: Site) -> None:
    with_reviewer(site)  # otherwise the doctor reports more than the runbook is about
    site.put(0, spoiled(0))
    site.work()

    run(site, "error-budget.md", {"KEY": site.key(0)}, {})
    run(site, "telemetry.md", {}, {})


@pytest.mark.slow
def test_a_masking_failure(site: Site) -> None:
    register = with_reviewer(site)
    register.publish(sites(register.dataset))
    register.put(sites(register.dataset, sensitivity=["nobody knows"] * 60))
    site.work()
    names = {"KEY": KEY, "LETTER": newest_letter(site)}

    def correct() -> None:
        register.put(sites(register.dataset, condition=["poor"] * 60))

    run(site, "masking-failure.md", names, {"kfm dlq redrive LETTER": correct})

    assert register.waiting().key == KEY


@pytest.mark.slow
def test_a_publication_anomaly_and_a_double_application(site: Site) -> None:
    with_reviewer(site)  # otherwise the doctor reports more than the runbook is about
    put = site.put(0)
    site.work()
    name = put.object_key.rsplit("/", 1)[1]
    site.put(0, data=parquet(streamflow_table(START).slice(0, 10)), name=name)
    site.work()

    def send_it_right() -> None:
        site.put(0, name=name)

    run(site, "publish-anomaly.md", {"KEY": site.key(0)}, {"kfm work --once": send_it_right})
    run(site, "double-apply.md", {"KEY": site.key(0)}, {})


@pytest.mark.slow
def test_exhausted_retries(stack: Stack, site_template: str, tmp_path: Path) -> None:
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, KFM_MAX_ATTEMPTS="2") as site:
        with_reviewer(site)  # otherwise the doctor reports more than the runbook is about
        site.put(0)
        with full_disk("work/masked"):
            assert site.work()["failed"] == 1

        run(site, "retry-exhaustion.md", {"KEY": site.key(0), "LETTER": newest_letter(site)}, {})


@pytest.mark.slow
def test_a_sink_that_is_behind(stack: Stack, site_template: str, tmp_path: Path, graph_server: GraphServer) -> None:
    """Keys wait for a graph whose contents are lost."""
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, **graph_server.environment) as site:
        site.put(0)
        site.work()
        with site.services.database.transaction() as connection:
            request(connection, [Sink.GRAPH], "usgs/streamflow", [site.key(0)])

        run(site, "sinks.md", {}, {})


def test_every_command_in_a_sentence_is_also_run() -> None:
    pages = [path.read_text() for path in sorted(RUNBOOKS.glob("*.md"))]
    commands = [step.command for page in pages for step in steps_of(page)]

    for sentence in set().union(*(mentioned(page) for page in pages)):
        assert any(command == sentence or command.startswith(f"{sentence} ") for command in commands), sentence


def test_every_runbook_is_run() -> None:
    assert {path.name for path in RUNBOOKS.glob("*")} == {
        "dlq-redrive.md",
        "double-apply.md",
        "duplicate-spike.md",
        "error-budget.md",
        "freshness.md",
        "kill-switch.md",
        "late-data-lane.md",
        "masking-failure.md",
        "publish-anomaly.md",
        "red-key.md",
        "retry-exhaustion.md",
        "review.md",
        "sinks.md",
        "telemetry.md",
        "watermark-lag.md",
    }


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("    kfm status\n", "outside a block"),
        ("$ kfm status\n", "outside a block"),
        ("```\n$ kfm status\n```\n", "neither a command"),
        ("```\nAWS_PROFILE=x kfm status\n```\n", "neither a command"),
        ("```\nkfm status\n", "without end"),
    ],
)
def test_no_command_of_a_page_is_missed(page: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        steps_of(page)


def test_commands_and_expected_output_are_read_in_order() -> None:
    first, second = steps_of("text\n```\nkfm status KEY\n  … of LETTER\n  exit code 1\nkfm dlq list --key 'a b'\n```\n")

    assert (first.arguments({"KEY": "k"}), first.phrases, first.code) == (["status", "k"], ["… of LETTER"], 1)
    assert (second.arguments({}), second.phrases, second.code) == (["dlq", "list", "--key", "a b"], [], 0)
    assert matches("xx 3 of 7", first.phrases[0], {"LETTER": "7"})
    assert not matches("xx 3 of 8", first.phrases[0], {"LETTER": "7"})
    with pytest.raises(AssertionError, match="NUMBER is not a known placeholder"):
        steps_of("```\nkfm dlq show NUMBER\n```\n")[0].arguments({})
