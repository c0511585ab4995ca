"""A Python process that is forked from one which has done the imports, used like `subprocess.Popen`."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from kfm_pipelines_tests.forks.server import HEADER, STATUS

PATIENCE_SECONDS = 120


class Forked:
    """`python *arguments` with this environment and these streams. What it imports is there already."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: IO[Any],
        stderr: IO[Any],
        stdin: IO[Any] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._stopped = False
        with Path(os.devnull).open("rb") as nothing:
            streams = [(stream or nothing).fileno() for stream in (stdin, stdout, stderr)]
            self._statuses = _server().start(arguments, env, streams)
        self.pid = self._next(PATIENCE_SECONDS)

    def poll(self) -> int | None:
        self._look(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (PATIENCE_SECONDS if timeout is None else timeout)
        while self.returncode is None:
            if not self._look(max(0.0, deadline - time.monotonic())):
                raise subprocess.TimeoutExpired("forked process", timeout or PATIENCE_SECONDS)
        return self.returncode

    def await_stop(self, timeout: float) -> bool:
        """Whether it was stopped by a signal, and did not end before."""
        deadline = time.monotonic() + timeout
        while self.returncode is None and not self._stopped:
            if not self._look(max(0.0, deadline - time.monotonic())):
                raise subprocess.TimeoutExpired("forked process", timeout)
        return self._stopped

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float) -> bool:
        """Whether it was stopped or has ended since the last look."""
        if self.returncode is not None or not select.select([self._statuses], [], [], timeout)[0]:
            return False
        status = self._next(0)
        self._stopped = os.WIFSTOPPED(status)
        if not self._stopped:
            self.returncode = os.waitstatus_to_exitcode(status)
            self._statuses.close()
        return True

    def _next(self, timeout: float) -> int:
        if not select.select([self._statuses], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("forked process", timeout)
        said = self._statuses.read(STATUS.size)
        assert said, "the server of forked processes has ended"
        return int(STATUS.unpack(said)[0])


class _Server:
    """The process that forks, one for this process. It ends when its socket is closed, and so with this process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "kfm_pipelines_tests.forks.server", str(theirs.fileno())]
        # Not a terminal, whatever this process has: output is buffered as for anything that writes to a pipe or a file.
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads is not to be forked
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self.close)

    def start(self, arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[int]) -> IO[bytes]:
        """Where the process id and then the wait statuses of the new process can be read."""
        asked = {"arguments": list(arguments), "environment": dict(env), "directory": str(Path.cwd())}
        body = json.dumps(asked).encode()
        statuses, report = os.pipe()
        with self._lock:
            socket.send_fds(self._socket, [HEADER.pack(len(body))], [*streams, report])
            self._socket.sendall(body)
        os.close(report)
        return os.fdopen(statuses, "rb", buffering=0)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(PATIENCE_SECONDS)


@cache
def _server() -> _Server:
    return _Server()
