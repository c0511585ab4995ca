"""Nothing the guard starts outlives whoever started the guard."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kfm_pipelines_tests.fixtures.sites.processes import descendants, eventually, running, says, script

WITH_GRANDCHILD = ["sh", "-c", "sleep 300 & sleep 300"]
STUBBORN = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"]

PARENT = """
import sys, subprocess
guarded = subprocess.Popen(
    [sys.executable, "-m", "kfm_pipelines.local.guard", "--", *sys.argv[1:]],
    stdin=subprocess.PIPE, start_new_session=True)
print(guarded.pid, flush=True)
guarded.wait()
"""


def guard(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kfm_pipelines.local.guard", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def started(guard_pid: int, count: int) -> list[int]:
    assert eventually(lambda: len(descendants(guard_pid)) >= count)
    return descendants(guard_pid)


def end(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(20)


def test_the_exit_code_is_the_commands() -> None:
    assert guard("--", "sh", "-c", "exit 7").wait(10) == 7


def test_a_command_that_died_of_a_signal_is_reported_as_a_shell_would() -> None:
    assert guard("--", "sh", "-c", "kill -9 $$").wait(10) == 137


def test_child_and_grandchild_are_gone_when_the_parent_is_killed() -> None:
    parent = script(PARENT, *WITH_GRANDCHILD)
    family = started(int(says(parent)), 3)
    parent.kill()
    parent.wait()
    assert eventually(lambda: not any(running(pid) for pid in family)), family


def test_closing_its_input_ends_child_and_grandchild() -> None:
    guarded = guard("--", *WITH_GRANDCHILD)
    family = started(guarded.pid, 3)
    assert end(guarded) == 128 + signal.SIGTERM
    assert eventually(lambda: not any(running(pid) for pid in family))


def test_what_a_finished_command_left_behind_is_ended() -> None:
    guarded = guard("--", "sh", "-c", "sleep 300 & sleep 1")
    family = started(guarded.pid, 2)
    assert guarded.wait(10) == 0
    assert eventually(lambda: not any(running(pid) for pid in family))


def test_a_command_that_does_not_listen_is_killed_after_the_grace_period() -> None:
    guarded = guard("--grace", "1", "--", *STUBBORN)
    (pid,) = started(guarded.pid, 1)
    time.sleep(0.3)  # until it has stopped listening
    assert end(guarded) == 128 + signal.SIGKILL
    assert not running(pid)


def test_a_signal_to_the_guard_ends_the_command() -> None:
    guarded = guard("--", *WITH_GRANDCHILD)
    family = started(guarded.pid, 3)
    guarded.terminate()
    guarded.wait(10)
    assert eventually(lambda: not any(running(pid) for pid in family))


def test_the_command_does_not_survive_the_guard_itself_being_killed() -> None:
    guarded = guard("--", "sleep", "300")
    (pid,) = started(guarded.pid, 1)
    guarded.kill()
    guarded.wait()
    assert eventually(lambda: not running(pid))


def test_the_command_is_asked_with_the_given_signal(tmp_path: Path) -> None:
    note = tmp_path / "note"
    shell = f"trap 'echo interrupted > {note}; exit 3' INT; echo > {note}; while :; do sleep 0.1; done"
    guarded = guard("--signal", "INT", "--", "sh", "-c", shell)
    assert eventually(note.exists)
    assert end(guarded) == 3
    assert note.read_text().strip() == "interrupted"


def test_an_interrupt_arrives_even_when_we_run_as_a_background_job() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for `kfm up &`
    try:
        guarded = guard("--signal", "INT", "--", "sleep", "300")
    finally:
        signal.signal(signal.SIGINT, before)
    started(guarded.pid, 1)
    assert end(guarded) == 128 + signal.SIGINT


def test_the_terminals_ctrl_c_is_not_for_the_command() -> None:
    guarded = guard("--", "sleep", "300")
    (pid,) = started(guarded.pid, 1)
    assert os.getsid(pid) not in (os.getsid(0), os.getsid(guarded.pid))
    end(guarded)
