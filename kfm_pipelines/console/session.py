"""What the command group passes to its commands: services, Dagster's definitions, chores, and stop signals."""

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from kfm_pipelines.services import Services

if TYPE_CHECKING:
    import dagster as dg


@dataclass(frozen=True, slots=True)
class Session:
    """The object of the click context. Definitions and chores are functions because they import Dagster."""

    open_services: Callable[..., AbstractContextManager[Services]]  # (*, prepared=True)
    use_running_stack: Callable[[], None]  # if there is one and the environment names no other
    definitions: "Callable[[Path], dg.Definitions]"
    chores: Callable[[], Any]
    quiet_libraries: Callable[[], None]


def current_session() -> Session:
    session = click.get_current_context().find_object(Session)
    if session is None:
        raise RuntimeError("a command was run outside the kfm command group")
    return session


def open_services(*, prepared: bool = True) -> AbstractContextManager[Services]:
    """`prepared` migrates the database and, on an emulator, creates what is missing."""
    return current_session().open_services(prepared=prepared)


def stop_on_signal() -> threading.Event:
    """Returns an event that SIGINT or SIGTERM sets. Further signals do not disturb the shutdown."""
    stop = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return stop
