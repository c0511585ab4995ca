"""Runs one command that cannot outlive the process that started it.

    python -m kfm_pipelines.local.guard [--signal TERM] [--grace 10] [--user NAME] -- CMD ARGS…

The parent holds the write end of the guard's standard input. When the parent is gone, even by SIGKILL, the kernel
closes that end, and the guard stops the command. Standard library only: the guard runs without site-packages.
"""

import argparse
import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

_WATCHED_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM}
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="guard", description="Run a command that ends when standard input closes.")
    parser.add_argument("--signal", default="TERM", choices=["TERM", "INT", "QUIT"], help="how to stop it")
    parser.add_argument("--grace", type=int, default=10, help="seconds between asking and SIGKILL")
    parser.add_argument("--user", help="run the command as this user; needs root")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    return run(options.command, signal.Signals[f"SIG{options.signal}"], options.grace, options.user)


def run(command: Sequence[str], stop_signal: signal.Signals, grace: int, user: str | None) -> int:
    """Runs the command until it ends, standard input closes or a signal arrives; returns its exit code."""
    for number in _WATCHED_SIGNALS:
        signal.signal(number, lambda *_: None)  # an ignored signal may be dropped before sigwait sees it
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED_SIGNALS)
    child = _start(command, stop_signal, user)
    threading.Thread(target=_sigterm_on_stdin_close, daemon=True).start()
    while child.poll() is None:
        match signal.sigwait(_WATCHED_SIGNALS):
            case signal.SIGTERM | signal.SIGINT | signal.SIGHUP:
                child.send_signal(stop_signal)
                signal.alarm(grace)
            case signal.SIGALRM:
                _kill_group(child.pid)
    _kill_group(child.pid)  # what the command left behind
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _start(command: Sequence[str], stop_signal: signal.Signals, user: str | None) -> subprocess.Popen[bytes]:
    pass_on_our_death = _parent_death_signal(stop_signal)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED_SIGNALS)
        for number in (*_WATCHED_SIGNALS, stop_signal):  # a shell's background job ignores some; the command must not
            signal.signal(number, signal.SIG_DFL)
        pass_on_our_death()

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=False,  # the command inherits the lock that shows it is running
        user=user,
        group=pwd.getpwnam(user).pw_gid if user else None,
        extra_groups=[] if user else None,
        preexec_fn=prepare,  # noqa: PLW1509 - no other thread exists yet
    )


def _parent_death_signal(stop_signal: signal.Signals) -> Callable[[], object]:
    """Loaded before the fork: afterwards the process may be a user who cannot read Python's own files."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, int(stop_signal))


def _sigterm_on_stdin_close() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
