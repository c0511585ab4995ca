"""A worker that sends itself a signal at a chosen point: `… crash.killer SIGKILL after begin KEY 1`.

The point is a moment (`before`, `inside`, `after`) of the N-th visit to a place with this key. A place is a WAL
transition or one of CALLS. A transition is not yet written `before`, written but not committed `inside`, and committed
`after`. With `batches` as last argument it runs batches over the due keys, without Dagster.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from kfm_pipelines.inbox import drain
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.state import transactions, wal
from kfm_pipelines.state.database import Database
from kfm_pipelines.state.keys import Claims
from kfm_pipelines.state.wal import Transition
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.runs.batches import publish_due
from kfm_pipelines_tests.fixtures.sites.site import Site, work_once

P = ParamSpec("P")
R = TypeVar("R")

# Every place that is a call: its name, and the owner and name of the function.
CALLS: tuple[tuple[str, object, str], ...] = (
    ("keep", FileStore, "create_all"),
    ("swap", FileStore, "swap_all"),
    ("replace", FileStore, "replace_all"),
    ("remove", FileStore, "remove"),
    ("write", FileStore, "write_all"),
    ("link", os, "link"),
    ("rename", Path, "replace"),
    ("take", Claims, "take_all"),
    ("record", drain, "record"),
    ("await_review", transactions, "await_review"),
)


@dataclass
class Point:
    """Where to send the signal. Visits are counted, so that it is sent once."""

    signal: signal.Signals
    moment: str
    place: str
    key: str
    nth: int
    visits: int = 0
    uncommitted: set[int] = field(default_factory=set)

    def reached(self, place: str, *subject: object) -> bool:
        if place != self.place or self.key not in repr(subject):
            return False
        self.visits += 1
        return self.visits == self.nth

    def send_signal(self, moment: str) -> None:
        if moment == self.moment:
            os.kill(os.getpid(), self.signal)


def install(point: Point) -> None:
    for place, owner, name in CALLS:
        setattr(owner, name, _watched_call(point, place, getattr(owner, name)))
    transitions: tuple[tuple[object, str, object], ...] = (
        (wal, "append", _watched_append(point, wal.append)),
        (Database, "transaction", _watched_transaction(point, Database.transaction)),
    )
    for owner, name, watched in transitions:
        setattr(owner, name, watched)


def _watched_call(point: Point, place: str, call: Callable[P, R]) -> Callable[P, R]:
    def watched(*args: P.args, **kwargs: P.kwargs) -> R:
        here = point.reached(place, *args)
        if here:
            point.send_signal("before")
        result = call(*args, **kwargs)
        if here:
            point.send_signal("after")
        return result

    return watched


def _watched_append(point: Point, append: Callable[..., None]) -> Callable[..., None]:
    def watched(connection: Any, transitions: Sequence[Transition]) -> None:
        here = any(point.reached(one.step, one.claim.key) for one in transitions)
        if here:
            point.send_signal("before")
        append(connection, transitions)
        if here:
            point.send_signal("inside")
            point.uncommitted.add(id(connection))

    return watched


def _watched_transaction(point: Point, transaction: Callable[[Database], Any]) -> Callable[[Database], Any]:
    @contextmanager
    def watched(database: Database) -> Iterator[Any]:
        with transaction(database) as connection:
            yield connection
        if id(connection) in point.uncommitted:
            point.uncommitted.clear()
            point.send_signal("after")

    return watched


def main(name: str, moment: str, place: str, key: str, nth: str, runs: str = "worker") -> None:
    install(Point(signal.Signals[name], moment, place, key, int(nth)))
    services = Services(load_settings())
    if runs == "worker":
        work_once(services)
    else:
        publish_due(Site(services, os.environ, Path(os.environ["KFM_HOME"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
