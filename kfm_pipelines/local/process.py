"""Child processes of a home: guarded, logged, and never running twice at once; and the loopback ports they serve."""

import contextlib
import fcntl
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local import guard

LOOPBACK = "127.0.0.1"
GRACE_SECONDS = 10
LOCK_WAIT_SECONDS = GRACE_SECONDS + 5  # how long the previous child may take to end


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and the signal that stops it."""

    arguments: Sequence[str]
    environ: Mapping[str, str]
    stop_signal: signal.Signals = signal.SIGTERM
    user: str | None = None


class GuardedProcess:
    """A running child. It ends with `stop()`, or when this process is gone."""

    def __init__(self, home: Path, name: str, command: Command) -> None:
        self.name = name
        lock = _lock_instance(home, name)
        try:
            self.log = _rotate_log(home, name)
            self._process = _spawn(command, self.log, lock)
        finally:
            os.close(lock)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Stops the child and waits until it and its children are gone. May be called twice."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Raises ServiceUnavailable, which names the log, when the child ends first or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.alive:
                raise ServiceUnavailable(f"{self.name} ended while starting; its log is {self.log}")
            if time.monotonic() > deadline:
                self.stop()
                raise ServiceUnavailable(f"{self.name} was not ready within {seconds:.0f} s; its log is {self.log}")
            time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Server:
    process: GuardedProcess
    url: str


def start_on_free_port(
    launch: Callable[[int], GuardedProcess], ready: Callable[[int], bool], seconds: float
) -> tuple[GuardedProcess, int]:
    """Waits until the server is ready; tries a second port, as another process may take the first."""
    for last_try in (False, True):
        port = free_port()
        process = launch(port)
        try:
            process.wait_until(partial(ready, port), seconds)
        except BaseException as error:
            process.stop()
            if last_try or not isinstance(error, ServiceUnavailable):
                raise
        else:
            return process, port
    raise AssertionError("unreachable")


def _spawn(command: Command, log: Path, lock: int) -> subprocess.Popen[bytes]:
    how_to_end = ["--signal", command.stop_signal.name.removeprefix("SIG"), "--grace", str(GRACE_SECONDS)]
    user = ["--user", command.user] if command.user else []
    with log.open("ab") as output:
        return subprocess.Popen(
            # By path and without site-packages: starts in 20 ms and in any working directory.
            [sys.executable, "-IS", guard.__file__, *how_to_end, *user, "--", *command.arguments],
            env=dict(command.environ),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is for this process, which stops its children in order
            pass_fds=(lock,),
        )


def is_running(home: Path, name: str) -> bool:
    lock = home / f"{name}.lock"
    if not lock.exists():
        return False
    descriptor = os.open(lock, os.O_RDWR)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def await_end(home: Path, name: str) -> None:
    """Waits until no child of that name runs in this home; raises ServiceUnavailable when one keeps running."""
    os.close(_lock_instance(home, name))


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_instance(home: Path, name: str) -> int:
    """The child and its children inherit the lock: two instances at once would corrupt the files."""
    lock = os.open(home / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while not try_lock(lock):
        if time.monotonic() > deadline:
            os.close(lock)
            raise ServiceUnavailable(f"{name} is already running in {home}; stop it, or set KFM_HOME")
        time.sleep(0.1)
    return lock


def _rotate_log(home: Path, name: str) -> Path:
    """Returns an empty log readable by its owner only; keeps the previous one."""
    folder = home / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    log = folder / f"{name}.log"
    if log.exists():
        log.replace(folder / f"{name}.previous.log")
    log.touch(mode=0o600)
    return log


def free_port(preferred: int = 0) -> int:
    for port in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do: a port in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return int(probe.getsockname()[1])
    raise OSError("no free port on the loopback interface")


def accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def answers(port: int, path: str) -> bool:
    """Returns whether an HTTP server on this port responds with 200 to this path; ignores proxy settings."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
