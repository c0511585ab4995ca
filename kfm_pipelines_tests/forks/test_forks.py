"""A forked process is as good as a new one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from kfm_pipelines_tests.cli.command import fresh_kfm, kfm
from kfm_pipelines_tests.forks.process import Forked
from kfm_pipelines_tests.local.processes import eventually, running

SHOW = """
import json, os, signal, sys, threading
from kfm_pipelines.messaging.clients import s3_client
print(json.dumps({
    "argv": sys.argv,
    "environment": dict(os.environ),
    "directory": os.getcwd(),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "threads": threading.active_count(),
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "clients": s3_client.cache_info().currsize,
    "command": any(name.startswith("kfm_pipelines.cli") for name in sys.modules),
    "main": __name__,
}))
"""
# Starts a process that sleeps, says both process ids, and is killed.
ORPHANED = """
import os, signal, sys
from kfm_pipelines_tests.forks import process
sleeping = process.Forked(["-c", "import time; time.sleep(300)"], env={}, stdout=sys.stdout, stderr=sys.stderr)
print(process._server()._process.pid, sleeping.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def forked(source: str, log: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Forked:
    with log.open("wb") as out:
        return Forked(["-c", source, *arguments], env=env or {}, stdout=out, stderr=out)


def test_it_has_what_it_was_given_and_nothing_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    assert forked(SHOW, log, "a", "b", env={"ONE": "1"}).wait(30) == 0

    assert json.loads(log.read_text()) == {
        "argv": ["-c", "a", "b"],
        "environment": {"ONE": "1"},
        "directory": str(tmp_path),
        "descriptors": [0, 1, 2],
        "threads": 1,
        "interrupt": True,
        "child": True,
        "clients": 0,
        "command": False,
        "main": "__main__",
    }


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("import atexit; atexit.register(print, 'over'); print('on', end=' ')", 0, "on over\n"),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("import threading as t, time; t.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", 0, "late\n"),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM, ""),
    ],
)
def test_it_ends_as_an_interpreter_ends(tmp_path: Path, source: str, code: int, says: str) -> None:
    log = tmp_path / "log"
    assert forked(source, log).wait(30) == code
    assert log.read_text() == says


def test_what_nobody_catches_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert forked("print('before'); 1 / 0", log).wait(30) == 1
    assert "before\n" in log.read_text()
    assert log.read_text().splitlines().count("ZeroDivisionError: division by zero") == 1


def test_it_is_stopped_sent_on_and_killed(tmp_path: Path) -> None:
    process = forked("import os, signal, time; os.kill(os.getpid(), signal.SIGSTOP); time.sleep(300)", tmp_path / "log")
    assert process.await_stop(30)
    assert process.poll() is None
    process.send_signal(signal.SIGCONT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.kill()
    assert process.wait(30) == process.poll() == -signal.SIGKILL
    assert not process.await_stop(0)


def test_two_processes_share_no_randomness(tmp_path: Path) -> None:
    source = "import random, uuid, tempfile; print(random.random(), uuid.uuid4(), tempfile.mktemp())"
    logs = [tmp_path / name for name in ("one", "other")]
    assert [process.wait(30) for process in [forked(source, log) for log in logs]] == [0, 0]
    one, other = (log.read_text().split() for log in logs)
    assert not set(one) & set(other)


def test_nothing_outlives_the_process_that_started_it() -> None:
    killed = subprocess.run([sys.executable, "-c", ORPHANED], stdout=subprocess.PIPE, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    server, sleeping = map(int, killed.stdout.split())
    assert eventually(lambda: not running(server) and not running(sleeping))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["review", "--help"], ["status", "--colour"], ["unknown"]])
def test_the_command_says_what_it_says_in_a_new_interpreter(arguments: list[str]) -> None:
    environment = {**os.environ, "COLUMNS": "60"}
    assert kfm(environment, *arguments) == fresh_kfm(environment, *arguments)


def test_it_is_quick(tmp_path: Path) -> None:
    assert forked("", tmp_path / "log").wait(30) == 0
    began = time.monotonic()
    for _ in range(5):
        assert forked("import dagster, pyarrow", tmp_path / "log").wait(30) == 0
    assert time.monotonic() - began < 5  # of new interpreters it would be ten and more
