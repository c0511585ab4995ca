"""A redrive whose process is stopped or killed can be resumed: nothing is lost and nothing is sent twice."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.forks.process import Forked
from kfm_pipelines_tests.fixtures.runs.letters import refusing, too_large
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

LETTERS = 4
# A shell's background job ignores Ctrl-C, and so would everything started from it, these tests included.
INTERRUPTIBLE = [
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from kfm_pipelines.cli import main; main()",
]
SLOWLY = ["dlq", "redrive", "--class", "schema", "--canary", "0", "--rate", "1", "--work"]


@pytest.fixture
def refused(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """A site with messages that were refused, and would be accepted now."""
    with opened_site(tmp_path / "site", stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        with refusing(site) as strict:
            too_large(strict, LETTERS)
            strict.drain()
        yield site


def interrupted(site: Site, how: signal.Signals) -> CommandResult:
    """Signals a redrive when some of its letters are sent and others are not."""
    out, err = site.root / "out", site.root / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = Forked([*INTERRUPTIBLE, *SLOWLY], env=site.environment, stdout=stdout, stderr=stderr)
    try:
        deadline = time.monotonic() + 60
        while not 1 <= len(site.fetch("SELECT FROM kfm.redrive_items WHERE state = 'sent'")) < LETTERS:
            assert time.monotonic() < deadline, "nothing was sent"
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.02)
        process.send_signal(how)
        code = process.wait(30)
    finally:
        process.kill()
    return CommandResult(code, out.read_text(), err.read_text())


def assert_each_recorded_once(site: Site) -> None:
    [totals] = site.fetch(
        f"SELECT received, recorded, duplicates FROM kfm.queue_totals WHERE queue = '{site.services.queue.name}'"
    )
    assert totals == {"received": 2 * LETTERS, "recorded": LETTERS, "duplicates": 0}
    assert site.fetch("SELECT state, count(*)::int AS n FROM kfm.dead_letters GROUP BY state") == [
        {"state": "closed", "n": LETTERS}
    ]
    assert site.fetch("SELECT count(*)::int AS n FROM kfm.wal WHERE outcome = 'APPLIED'") == [{"n": LETTERS}]
    sendings = "SELECT letter FROM kfm.letter_moves WHERE what = 'recorded' ORDER BY letter"
    assert len(site.fetch(sendings)) == LETTERS


@pytest.mark.slow
def test_ctrl_c_stops_it_with_a_hint_how_to_resume(refused: Site) -> None:
    stopped = interrupted(refused, signal.SIGINT)

    assert (stopped.code, stopped.out) == (130, "")
    *_, hint, last = [line for line in stopped.err.splitlines() if line]
    assert last == "stopped"
    assert "Traceback" not in stopped.err
    [redrive] = refused.fetch("SELECT id FROM kfm.redrives")
    assert hint == f"redrive {redrive['id']} is not finished; continue with `kfm dlq redrive --resume {redrive['id']}`"
    resumed = kfm(refused.environment, "dlq", "redrive", "--resume", redrive["id"], "--work", "--json")
    assert resumed.json == {"redrive": redrive["id"], "sent": LETTERS, "succeeded": LETTERS, "failed": 0}
    assert_each_recorded_once(refused)


@pytest.mark.slow
def test_after_a_kill_its_letters_name_the_redrive_to_resume(refused: Site) -> None:
    killed = interrupted(refused, signal.SIGKILL)

    assert killed.code == -signal.SIGKILL
    [letter, *_] = kfm(refused.environment, "dlq", "list", "--state", "redriving", "--json").json["letters"]
    history = kfm(refused.environment, "dlq", "show", str(letter["letter"]), "--json").json["history"]
    redrive = history[-1]["redrive"]
    taken = kfm(refused.environment, "dlq", "redrive", str(letter["letter"]))
    assert (taken.code, taken.err) == (
        1,
        f"kfm: letter {letter['letter']} is redriving; only an open one can be redriven or quarantined\n",
    )
    resumed = kfm(refused.environment, "dlq", "redrive", "--resume", redrive, "--work", "--json")
    assert resumed.json == {"redrive": redrive, "sent": LETTERS, "succeeded": LETTERS, "failed": 0}
    assert_each_recorded_once(refused)
