"""Commands from emit to status, errors as one sentence, and stop signals."""

import signal
from pathlib import Path

import pytest

from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.sites.command import RUN, kfm_in_process
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site


@pytest.mark.slow
def test_from_emit_to_published(site: Site) -> None:
    sent = kfm_in_process(site.environment, "emit", "--windows", "3", "--copies", "2", "--json").json
    assert sent == {"objects": 3, "messages": 6, "keys": [site.key(hour) for hour in range(3)]}

    drained = kfm_in_process(site.environment, "drain", "--once", "--json").json
    assert drained == {"received": 9, "recorded": 3, "duplicates": 6, "refused": 0, "violations": 0}

    worked = kfm_in_process(site.environment, "work", "--once", "--json").json
    assert worked == {"keys": 3, "published": 3, "skipped": 0, "failed": 0, "runs": 1}

    whole = kfm_in_process(site.environment, "status", "--json").json["datasets"]["usgs/streamflow"]
    assert whole["inbox"] == {"received": 0, "started": 0, "succeeded": 3, "failed": 0}
    assert (whole["published_keys"], whole["dlq"], whole["published_until"]) == (3, 0, "2025-12-04T03:00:00+00:00")


@pytest.mark.slow
def test_the_history_of_one_key(site: Site) -> None:
    put = site.put()
    site.work()
    site.send(site.auto_update_message(put))
    site.work()

    history = kfm_in_process(site.environment, "status", site.key(), "--json").json

    steps = [transition["step"] for transition in history["transitions"]]
    assert steps == ["begin", "compute", "mask", "validate", "stage_atomic", "publish", "commit", "begin", "skip"]
    assert [transition["outcome"] for transition in history["transitions"] if transition["outcome"]] == [
        "APPLIED",
        "SKIPPED",
    ]
    assert [revision["revision"] for revision in history["revisions"]] == [1]
    assert len(history["run_ids"]) == 2
    assert {event["shape"] for event in history["events"]} == {"s3-notification", "auto-update"}


@pytest.mark.slow
def test_a_given_message_is_sent_to_the_queue_or_the_topic(site: Site) -> None:
    put = site.put()
    site.drain()
    for target in ("queue", "topic"):
        kfm_in_process(site.environment, "emit", "--body", "-", "--to", target, text=site.s3_message(put))

    drained = kfm_in_process(site.environment, "drain", "--once", "--json").json

    assert drained == {"received": 2, "recorded": 0, "duplicates": 2, "refused": 0, "violations": 0}


@pytest.mark.slow
def test_an_unreadable_message_is_refused_and_counted(site: Site) -> None:
    kfm_in_process(site.environment, "emit", "--body", "-", "--to", "queue", text="not JSON")

    assert kfm_in_process(site.environment, "drain", "--once", "--json").json["refused"] == 1
    status = kfm_in_process(site.environment, "status", "--json").json
    assert status["refused_messages"] == 1
    assert [letter["error"] for letter in status["dead_letters"]] == ["BodyUnreadable"]
    assert status["dead_letters"][0]["reason"] in kfm_in_process(site.environment, "status").out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["status", "not-a-key"], 1, "five are needed"),
        (["status", "a:b:none:2025-01-01:v1"], 1, "no event has named this key"),
        (["status", "--colour"], 2, "No such option"),
        (["emit", "--windows", "0"], 2, "--windows"),
        (["datasets", "check", "/nonexistent.yaml"], 2, "does not exist"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(untouched: Site, arguments: list[str], code: int, message: str) -> None:
    result = kfm_in_process(untouched.environment, *arguments)

    assert (result.code, message in result.err) == (code, True), result.err
    assert "Traceback" not in result.err


def test_an_invalid_declaration_is_reported_with_file_and_field(untouched: Site, tmp_path: Path) -> None:
    original = (Path(untouched.environment["KFM_RESOURCES"]) / "datasets/usgs-streamflow.yaml").read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(original.replace("window: hour", "window: hourly"))

    result = kfm_in_process(untouched.environment, "datasets", "check", str(wrong))

    assert result.code == 1
    problem, count = result.err.strip().splitlines()
    assert problem.startswith("error: wrong.yaml:24: key.window: Input should be 'hour'")
    assert problem.endswith("not 'hourly'; did you mean 'hour'?")
    assert count == "1 error to correct"


def test_datasets_are_listed_with_their_bucket_and_prefix(untouched: Site) -> None:
    listed = kfm_in_process(untouched.environment, "datasets", "list", "--json").json["datasets"]

    found = [(dataset["dataset"], dataset["bucket"], dataset["prefix"]) for dataset in listed]
    assert [name for name, *_ in found] == sorted(untouched.services.datasets)
    assert {
        ("drought/tribal-areas", untouched.bucket, "drought/tribal-areas/"),
        ("esa/sentinel-2-scenes", "sentinel-s2-l2a", "tiles/"),
        ("usgs/streamflow", untouched.bucket, "usgs/streamflow/"),
    } <= set(found)


def test_an_unreachable_database_is_one_sentence(untouched: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfm_pipelines.state.database.CONNECTION_SECONDS", 0.5)
    result = kfm_in_process(
        {**untouched.environment, "KFM_POSTGRES_URL": "postgresql://nobody@127.0.0.1:9/none"}, "status"
    )

    assert result.code == 1
    assert result.err.startswith("kfm: Postgres does not answer")
    assert len(result.err.strip().splitlines()) == 1


IGNORE_SIGNALS = """
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print("ignored", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_long_running_command_stops_even_if_signals_were_ignored(
    untouched: Site, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A shell may ignore both signals for a command in the background of a script."""
    log = tmp_path / "log"
    with log.open("wb") as output:
        source = IGNORE_SIGNALS + RUN[1]
        process = Forked(["-c", source, "drain"], env=untouched.environment, stdout=output, stderr=output)
    assert eventually(lambda: "ignored" in log.read_text() and not _ignores(process.pid, number), seconds=60)
    process.send_signal(number)
    assert process.wait(30) == code


def _ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1]
    return bool(int(mask, 16) >> (number - 1) & 1)
