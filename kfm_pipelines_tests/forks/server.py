"""A process that has done the imports, and forks a child for each request: `python -m … forks.server DESCRIPTOR`.

A request is what a new interpreter would be given: `-c SOURCE …` or `-m MODULE …`, the environment, the directory, and
the three standard streams. The child is a process of its own: it can be killed and stopped, and it ends as an
interpreter ends, but for taking its modules apart. Nothing here reads a setting, opens a connection or starts a thread
before it forks. The command's own package is left for the child to import, because it looks at the terminal then.

What becomes of a child goes to whoever asked, as one wait status after the other. The server ends, and its children
with it, when the process that started it has ended.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType

from kfm_pipelines.operations import environment

# What the commands and the workers import sooner or later.
MODULES = (
    "alembic.command",
    "boto3.session",
    "botocore.handlers",
    "click",
    "cyclonedx.output.json",
    "dagster",
    "dagster_postgres",
    "fsspec.implementations.local",
    "h3",
    "jsonschema",
    "jsonschema_rs",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "opentelemetry.exporter.otlp.json.file",
    "opentelemetry.sdk.metrics.export",
    "opentelemetry.sdk.trace.export",
    "pandas",
    "prov.model",
    "psycopg2.extras",
    "psycopg_pool",
    "pyarrow.parquet",
    "pystac.validation",
    "rich.progress",
    "rich.table",
    "s3transfer.manager",
    "securesystemslib.signer",
    "shapely",
    "upath",
    "kfm_pipelines.cli",
    "kfm_pipelines.orchestration.worker",
)
HEADER = struct.Struct("!I")
STATUS = struct.Struct("!i")


@dataclass(frozen=True)
class Request:
    """What to become; `streams` are the descriptors of stdin, stdout and stderr."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    streams: tuple[int, ...]


class Server:
    """The loop, in one thread: requests in, wait statuses out."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._reports: dict[int, int] = {}  # by process id, where its statuses go
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)

    def serve(self) -> Request | None:
        """Returns in each child with its request, and in the server itself with none, at its end."""
        while True:
            ready, _, _ = select.select([self._requests.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._report()
            if self._requests.fileno() in ready:
                header, descriptors, _, _ = socket.recv_fds(self._requests, HEADER.size, 4)
                if not header:
                    self._kill_all()
                    return None
                if request := self._fork(header, tuple(descriptors)):
                    return request

    def _fork(self, header: bytes, descriptors: tuple[int, ...]) -> Request | None:
        *streams, report = descriptors
        [size] = HEADER.unpack(header)
        asked = json.loads(self._requests.recv(size, socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            self._close(report)
            return Request(**asked, streams=tuple(streams))
        for stream in streams:
            os.close(stream)
        self._reports[pid] = report
        with suppress(BrokenPipeError):
            os.write(report, STATUS.pack(pid))
        return None

    def _report(self) -> None:
        for pid in list(self._reports):
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if not ended:
                continue
            with suppress(BrokenPipeError):  # nobody wants to know any more
                os.write(self._reports[pid], STATUS.pack(status))
            if not os.WIFSTOPPED(status):
                os.close(self._reports.pop(pid))

    def _kill_all(self) -> None:
        for pid in self._reports:
            os.kill(pid, signal.SIGKILL)

    def _close(self, report: int) -> None:
        """In a child: keep nothing of the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, self._interrupt)
        self._requests.close()
        for descriptor in (report, self._woken, self._wake, *self._reports.values()):
            os.close(descriptor)


def become(request: Request) -> None:
    """Go on as the process that was asked for."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.directory)
    kind, what, *arguments = request.arguments
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)


def end_of(request: Request) -> int:
    """The exit code, after all that an interpreter still does for a program that has run."""
    code = 0
    try:
        become(request)
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
        if not isinstance(asked.code, int | None):
            sys.stderr.write(f"{asked.code}\n")
    except Exception:  # noqa: BLE001 what nobody caught is shown
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _preload() -> None:
    for name in MODULES:
        importlib.import_module(name)
    environment.sbom()  # what is installed is the same for all of them
    for name in [name for name in sys.modules if name.startswith("kfm_pipelines.cli")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # a collection in a child need not look through all of it


def _main(descriptor: str) -> None:
    _preload()
    if request := Server(socket.socket(fileno=int(descriptor))).serve():
        os._exit(end_of(request))


if __name__ == "__main__":
    _main(sys.argv[1])
