"""What a command works on: the services of the environment, or the embedded stack, brought up to date."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kfm_pipelines.local.dagster import dagster_environment
from kfm_pipelines.local.keys import care_environment
from kfm_pipelines.local.stack import open_stack
from kfm_pipelines.services import Workshop, set_up
from kfm_pipelines.settings import home_directory, load_settings
from kfm_pipelines.telemetry.logs.configure import configure_logs


@contextmanager
def opened_workshop(*, prepared: bool = True) -> Iterator[Workshop]:
    """The workshop for one command. `prepared` migrates the database and, on an emulator, creates what is missing."""
    home = home_directory(os.environ)
    embedded = not os.environ.get("KFM_POSTGRES_URL")
    if embedded:
        # The embedded stack has a Dagster instance of its own; another project's must not get our runs.
        os.environ.pop("DAGSTER_HOME", None)
    with open_stack(home) as stack:
        os.environ.update(stack.environment)
        os.environ.update(dagster_environment(home, os.environ))
        if embedded:
            os.environ.update(care_environment(home, os.environ))
        settings = load_settings()
        configure_logs(settings)
        workshop = Workshop(settings)
        try:
            if prepared:
                set_up(workshop, cloud=bool(os.environ.get("AWS_ENDPOINT_URL")))
            yield workshop
        finally:
            workshop.close()


def stop_on_signal() -> threading.Event:
    """Ctrl-C or SIGTERM asks once, nicely; while things are stopping, further signals change nothing."""
    stop = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return stop
