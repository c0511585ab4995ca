"""`kfm trace` displays spans from the files of the home alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.runs.dispatch import spoiled
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

NOWHERE = {"KFM_POSTGRES_URL": "postgresql://nobody@127.0.0.1:1/none", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}


@pytest.fixture(scope="module")
def failed(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("trace") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        site.put(0, spoiled(0))
        site.work()
        site.services.telemetry.flush()
        yield site


def test_a_key_that_failed_shows_where(failed: Site) -> None:
    """Needs no database and no queues: they may be what failed."""
    result = kfm({**failed.environment, **NOWHERE}, "trace", failed.key())
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("trace ")
    assert any("validate" in line and "FAILED: QualityRefused" in line for line in lines)
    assert any("qa_gate" in line and "verdict red" in line for line in lines)
    assert not any(" publish " in line for line in lines)
    depth = {line.split()[4]: line.index(line.split()[4]) for line in lines[1:]}
    assert depth["sqs_receive"] < depth["validate"] < depth["qa_gate"]


def test_event_run_and_trace_ids_lead_to_the_same_trace(failed: Site) -> None:
    by_key = kfm(failed.environment, "trace", failed.key(), "--json").json
    [event] = failed.fetch("SELECT identity FROM kfm.inbox")
    [run] = failed.fetch("SELECT DISTINCT run_id FROM kfm.wal")
    for what in (event["identity"], run["run_id"], by_key["trace"]):
        assert kfm(failed.environment, "trace", what, "--json").json["trace"] == by_key["trace"]
    assert {span["trace"] for span in by_key["spans"]} == {by_key["trace"]}


@pytest.mark.parametrize("what", ["nonsense", "f" * 32, "\x1b[2Jgone", "a:b:c:d:e"])
def test_an_unknown_id_is_one_sentence(untouched: Site, what: str) -> None:
    result = kfm(untouched.environment, "trace", what)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("kfm: no trace of ")
    assert result.err.count("\n") == 1
    assert "\x1b" not in result.err


def test_a_torn_line_hides_nothing_but_itself(failed: Site) -> None:
    path = Path(failed.root / "telemetry" / "spans.jsonl")
    whole = path.read_bytes()
    path.write_bytes(b'{"resourceSpans": [{"torn' + failed.key().encode() + b"\n" + whole + whole[: len(whole) // 2])
    assert "qa_gate" in kfm(failed.environment, "trace", failed.key()).out
    path.write_bytes(whole)
