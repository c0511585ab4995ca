"""A guarded process has a private log, can be stopped, and never runs twice in one home."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local import process as process_module
from kfm_pipelines.local.process import Command, GuardedProcess, start_on_free_port
from kfm_pipelines_tests.fixtures.sites.processes import eventually

SLEEPER = Command(["sleep", "300"], os.environ)


def test_output_goes_to_a_private_log(tmp_path: Path) -> None:
    process = GuardedProcess(tmp_path, "greeter", Command(["sh", "-c", "echo hello; echo $WHO >&2"], {"WHO": "world"}))
    assert eventually(lambda: not process.alive)
    assert process.log == tmp_path / "logs" / "greeter.log"
    assert process.log.read_text() == "hello\nworld\n"
    assert process.log.stat().st_mode & 0o777 == 0o600


def test_the_previous_log_is_kept(tmp_path: Path) -> None:
    for word in ("first", "second"):
        process = GuardedProcess(tmp_path, "greeter", Command(["echo", word], os.environ))
        assert eventually(lambda process=process: not process.alive)  # type: ignore[misc]
    assert (tmp_path / "logs" / "greeter.previous.log").read_text() == "first\n"


def test_stop_may_be_repeated(tmp_path: Path) -> None:
    process = GuardedProcess(tmp_path, "sleeper", SLEEPER)
    assert process.alive
    process.stop()
    process.stop()
    assert not process.alive


def test_a_second_process_waits_for_the_first_to_end(tmp_path: Path) -> None:
    first = GuardedProcess(tmp_path, "sleeper", SLEEPER)
    threading.Timer(0.3, first.stop).start()
    second = GuardedProcess(tmp_path, "sleeper", SLEEPER)
    assert not first.alive
    second.stop()


def test_a_second_process_is_refused_while_the_first_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LOCK_WAIT_SECONDS", 0.2)
    first = GuardedProcess(tmp_path, "sleeper", SLEEPER)
    with pytest.raises(ServiceUnavailable, match="sleeper is already running in"):
        GuardedProcess(tmp_path, "sleeper", SLEEPER)
    assert first.alive
    first.stop()


def test_a_command_that_outlived_its_guard_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LOCK_WAIT_SECONDS", 0.2)
    note = tmp_path / "note"
    command = Command(["sh", "-c", f"trap '' TERM; echo $PPID $$ > {note}; while :; do sleep 0.1; done"], os.environ)
    GuardedProcess(tmp_path, "deaf", command)
    assert eventually(lambda: note.exists() and note.read_text().endswith("\n"))
    guard, deaf = map(int, note.read_text().split())
    os.kill(guard, signal.SIGKILL)
    try:
        with pytest.raises(ServiceUnavailable, match="deaf is already running in"):
            GuardedProcess(tmp_path, "deaf", SLEEPER)
    finally:
        os.kill(deaf, signal.SIGKILL)


def test_a_process_that_ends_while_starting_is_reported_with_its_log(tmp_path: Path) -> None:
    process = GuardedProcess(tmp_path, "failing", Command(["sh", "-c", "exit 1"], os.environ))
    with pytest.raises(ServiceUnavailable, match=r"failing ended while starting; its log is .*/logs/failing\.log"):
        process.wait_until(lambda: False, 10)


def test_a_process_that_takes_too_long_is_stopped_and_reported(tmp_path: Path) -> None:
    process = GuardedProcess(tmp_path, "slow", SLEEPER)
    with pytest.raises(ServiceUnavailable, match="slow was not ready within 0 s"):
        process.wait_until(lambda: False, 0.2)
    assert not process.alive


def test_a_server_whose_port_was_taken_gets_another(tmp_path: Path) -> None:
    tried: list[int] = []

    def launch(port: int) -> GuardedProcess:
        tried.append(port)
        program = "import time; time.sleep(300)" if len(tried) == 2 else "raise SystemExit('address in use')"
        return GuardedProcess(tmp_path, "server", Command([sys.executable, "-c", program], os.environ))

    process, port = start_on_free_port(launch, lambda port: len(tried) == 2, 10)
    assert tried[1:] == [port]
    process.stop()
