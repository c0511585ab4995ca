"""Nothing that the guard starts outlives the process that started the guard."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kfm_pipelines_tests.fixtures.sites.processes import (
    WITH_IGNORED_SIGNALS,
    descendants,
    eventually,
    next_line,
    running,
    script,
)

WITH_GRANDCHILD = ["sh", "-c", "sleep 300 & sleep 300"]
PARENT = """
import sys, subprocess
guarded = subprocess.Popen(
    [sys.executable, "-m", "kfm_pipelines.local.guard", "--", *sys.argv[1:]],
    stdin=subprocess.PIPE, start_new_session=True)
print(guarded.pid, flush=True)
guarded.wait()
"""


def guard(*arguments: str, ignored: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kfm_pipelines.local.guard", *arguments]
    prefix = WITH_IGNORED_SIGNALS if ignored else ()
    return subprocess.Popen([*prefix, *command], stdin=subprocess.PIPE, start_new_session=True)


def started(guard_pid: int, count: int) -> list[int]:
    assert eventually(lambda: len(descendants(guard_pid)) >= count)
    return descendants(guard_pid)


def end(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(20)


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_one_a_shell_would_report(command: str, code: int) -> None:
    assert guard("--", "sh", "-c", command).wait(10) == code


def test_child_and_grandchild_end_when_the_parent_is_killed() -> None:
    parent = script(PARENT, *WITH_GRANDCHILD)
    family = started(int(next_line(parent)), 3)
    parent.kill()
    parent.wait()
    assert eventually(lambda: not any(running(pid) for pid in family)), family


@pytest.mark.parametrize("ignored", [False, True])
def test_closing_the_input_ends_child_and_grandchild(ignored: bool) -> None:
    guarded = guard("--", *WITH_GRANDCHILD, ignored=ignored)
    family = started(guarded.pid, 3)
    assert end(guarded) == 128 + signal.SIGTERM
    assert eventually(lambda: not any(running(pid) for pid in family))


def test_processes_that_a_finished_command_left_behind_are_ended() -> None:
    guarded = guard("--", "sh", "-c", "sleep 300 & sleep 1")
    family = started(guarded.pid, 2)
    assert guarded.wait(10) == 0
    assert eventually(lambda: not any(running(pid) for pid in family))


def test_a_command_that_ignores_the_signal_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    guarded = guard("--grace", "1", "--", "sh", "-c", f"trap '' TERM; echo > {ready}; while :; do sleep 0.1; done")
    assert eventually(ready.exists)
    assert end(guarded) == 128 + signal.SIGKILL


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_guard_ends_the_command(number: signal.Signals, ignored: bool) -> None:
    guarded = guard("--", *WITH_GRANDCHILD, ignored=ignored)
    family = started(guarded.pid, 3)
    guarded.send_signal(number)
    assert guarded.wait(10) == 128 + signal.SIGTERM
    assert eventually(lambda: not any(running(pid) for pid in family))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the command when its guard is killed")
@pytest.mark.parametrize("ignored", [False, True])
def test_the_command_ends_when_the_guard_itself_is_killed(ignored: bool) -> None:
    guarded = guard("--", "sleep", "300", ignored=ignored)
    (pid,) = started(guarded.pid, 1)
    guarded.kill()
    guarded.wait()
    assert eventually(lambda: not running(pid))


def test_the_command_gets_the_given_signal(tmp_path: Path) -> None:
    note = tmp_path / "note"
    shell = f"trap 'echo interrupted > {note}; exit 3' INT; echo > {note}; while :; do sleep 0.1; done"
    guarded = guard("--signal", "INT", "--", "sh", "-c", shell, ignored=True)
    assert eventually(note.exists)
    assert end(guarded) == 3
    assert note.read_text().strip() == "interrupted"


def test_ctrl_c_in_the_terminal_does_not_reach_the_command() -> None:
    guarded = guard("--", "sleep", "300")
    (pid,) = started(guarded.pid, 1)
    assert os.getsid(pid) not in (os.getsid(0), os.getsid(guarded.pid))
    end(guarded)
