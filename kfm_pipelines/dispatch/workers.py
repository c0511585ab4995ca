"""Several workers of one command, each in a process of its own that ends with the command.

The processes are forked from one that has done the imports, like runs of the daemon (ADR 0027).
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess

from kfm_pipelines.console.output import stderr_console
from kfm_pipelines.console.session import Session
from kfm_pipelines.dispatch.worker import WorkSummary, work
from kfm_pipelines.errors import KfmError, ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.telemetry.logs.configure import configure_logs

GRACE_SECONDS = 10
RESTART_SECONDS = 1.0  # between the end of a worker and the start of its successor

OnProgress = Callable[[WorkSummary], None]


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    process: BaseProcess
    summaries: "connection.Connection[None, WorkSummary]"


def work_together(session: Session, count: int, *, once: bool, on_progress: OnProgress) -> None:
    """Runs so many workers until all have ended (`once`), or for ever. One that dies is replaced, since the others may
    have ended before its keys were free; with `once` not again and again."""
    with _ending_all() as running:
        while len(running) < count:
            running.append(_start(session, count, once))
        succeeded, died = False, 0
        while running:
            for summaries in connection.wait([one.summaries for one in running]):
                [one] = [one for one in running if one.summaries is summaries]
                try:
                    on_progress(one.summaries.recv())
                except EOFError:
                    running.remove(one)
                    one.process.join()
                    succeeded |= one.process.exitcode == 0
                    if one.process.exitcode:
                        died += 1
                        stderr_console.print(f"a worker ended with {one.process.exitcode}", markup=False)
                    if not once or (one.process.exitcode and died <= count):
                        time.sleep(RESTART_SECONDS)
                        running.append(_start(session, count, once))
    if not succeeded:
        raise ServiceUnavailable("no worker has finished; see the log in KFM_HOME/telemetry")


@contextmanager
def _ending_all() -> Iterator[list[WorkerProcess]]:
    running: list[WorkerProcess] = []
    try:
        yield running
    finally:
        for one in running:
            one.process.terminate()
        for one in running:
            one.process.join(GRACE_SECONDS)
            one.process.kill()


def _start(session: Session, count: int, once: bool) -> WorkerProcess:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads must not be forked
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kfm_pipelines.preload"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_run_worker, args=(theirs, dict(os.environ), session, count, once), name="kfm work"
    )
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return WorkerProcess(process, ours)


def _run_worker(
    summaries: "connection.Connection[WorkSummary, None]",
    environ: Mapping[str, str],
    session: Session,
    count: int,
    once: bool,
) -> None:
    os.setsid()  # Ctrl-C in the terminal is for the command, which ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a command in the background of a script ignores it
    threading.Thread(target=_end_with_command, daemon=True).start()
    os.environ.update(environ)
    session.quiet_libraries()
    settings = load_settings()
    configure_logs(settings)
    with closing(Services(settings)) as services:
        try:
            definitions = session.definitions(settings.resources)
            work(services, definitions, session.chores(), once=once, workers=count, on_progress=summaries.send)
        except KfmError as error:
            summaries.send(WorkSummary(problems=(str(error),)))


def _end_with_command() -> None:
    """Ends this process when the command is gone, however that happened; its keys are taken over."""
    command = multiprocessing.parent_process()
    if command is not None:
        command.join()
    os.kill(os.getpid(), signal.SIGKILL)
