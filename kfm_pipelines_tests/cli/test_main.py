"""emit, drain, work, status and datasets, each with --json."""

from pathlib import Path

import pytest

from kfm_pipelines_tests.fixtures.sites.command import fresh_kfm, kfm
from kfm_pipelines_tests.fixtures.sites.site import Site


@pytest.mark.slow
def test_from_emit_to_published(site: Site) -> None:
    sent = kfm(site.environment, "emit", "--windows", "3", "--copies", "2", "--json").json
    assert sent == {"objects": 3, "messages": 6, "keys": [site.key(hour) for hour in range(3)]}

    drained = kfm(site.environment, "drain", "--once", "--json").json
    assert drained == {"received": 9, "recorded": 3, "duplicates": 6, "refused": 0, "violations": 0}

    worked = fresh_kfm(site.environment, "work", "--once", "--json").json
    assert worked == {"keys": 3, "published": 3, "skipped": 0, "failed": 0, "runs": 1}

    whole = kfm(site.environment, "status", "--json").json["datasets"]["usgs/streamflow"]
    assert whole["inbox"] == {"received": 0, "started": 0, "succeeded": 3, "failed": 0}
    assert (whole["published_keys"], whole["dlq"], whole["published_until"]) == (3, 0, "2025-12-04T03:00:00+00:00")


@pytest.mark.slow
def test_the_history_of_one_key(site: Site) -> None:
    put = site.put()
    site.work()
    site.send(site.auto_update_message(put))
    site.work()

    history = kfm(site.environment, "status", site.key(), "--json").json

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
def test_a_message_of_ones_own_goes_to_the_queue_or_through_the_topic(site: Site) -> None:
    put = site.put()
    site.drain()
    for target in ("queue", "topic"):
        kfm(site.environment, "emit", "--body", "-", "--to", target, text=site.s3_message(put))

    drained = kfm(site.environment, "drain", "--once", "--json").json

    assert drained == {"received": 2, "recorded": 0, "duplicates": 2, "refused": 0, "violations": 0}


@pytest.mark.slow
def test_rubbish_is_refused_and_counted(site: Site) -> None:
    kfm(site.environment, "emit", "--body", "-", "--to", "queue", text="not JSON")

    assert kfm(site.environment, "drain", "--once", "--json").json["refused"] == 1
    status = kfm(site.environment, "status", "--json").json
    assert status["refused_messages"] == 1
    assert [letter["error"] for letter in status["dead_letters"]] == ["BodyUnreadable"]
    assert status["dead_letters"][0]["reason"] in kfm(site.environment, "status").out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["status", "not-a-key"], 1, "five are needed"),
        (["status", "a:b:none:2025-01-01:v1"], 1, "no event has named this key"),
        (["status", "--colour"], 2, "No such option"),
        (["emit", "--windows", "0"], 2, "--windows"),
        (["datasets", "check", "/nonexistent.yaml"], 2, "does not exist"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(untouched: Site, arguments: list[str], code: int, says: str) -> None:
    said = kfm(untouched.environment, *arguments)

    assert (said.code, says in said.err) == (code, True), said.err
    assert "Traceback" not in said.err


def test_a_wrong_declaration_is_named_with_file_and_field(untouched: Site, tmp_path: Path) -> None:
    original = (Path(untouched.environment["KFM_RESOURCES"]) / "datasets/usgs-streamflow.yaml").read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(original.replace("window: hour", "window: hourly"))

    said = kfm(untouched.environment, "datasets", "check", str(wrong))

    assert said.code == 1
    assert said.err.startswith("kfm: wrong.yaml: key.window:")
    assert len(said.err.strip().splitlines()) == 1


def test_datasets_are_listed_with_where_their_objects_belong(untouched: Site) -> None:
    listed = kfm(untouched.environment, "datasets", "list", "--json").json["datasets"]

    assert [(dataset["dataset"], dataset["bucket"], dataset["prefix"]) for dataset in listed] == [
        (name, untouched.bucket, f"{name}/") for name in ("drought/tribal-areas", "heritage/sites", "usgs/streamflow")
    ]


@pytest.mark.slow
def test_an_unreachable_database_is_one_sentence(untouched: Site) -> None:
    said = kfm({**untouched.environment, "KFM_POSTGRES_URL": "postgresql://nobody@127.0.0.1:9/none"}, "status")

    assert said.code == 1
    assert said.err.startswith("kfm: Postgres does not answer")
    assert len(said.err.strip().splitlines()) == 1
