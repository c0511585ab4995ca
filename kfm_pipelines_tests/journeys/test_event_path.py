"""One event passes through few modules: whoever follows it can hold them in mind."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.dispatch import Chores
from kfm_pipelines.dispatch.worker import work
from kfm_pipelines.settings import PACKAGE
from kfm_pipelines_tests.fixtures.sites.site import Site

MAX_MODULES = 120
NO_CHORES = Chores(with_queues=(), always=(), gauges=lambda services, *, at_once=False: None)


@contextmanager
def traced_modules() -> Iterator[set[str]]:
    """Collects the modules of the package in which a function is called, in all threads."""
    seen: set[str] = set()
    root = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root) and frame.f_code.co_name != "<module>":
            seen.add(str(Path(name).relative_to(PACKAGE)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_an_event_touches_few_modules(site: Site) -> None:
    """From the queue to the published Item, after a first event has loaded what stays loaded."""
    definitions = build_definitions(site.services.settings.resources)
    site.put(0)
    site.work()
    site.put(1)
    with traced_modules() as modules:
        done = work(site.services, definitions, NO_CHORES, once=True)
    assert done.counts()["published"] == 1
    assert len(modules) <= MAX_MODULES, "\n".join(sorted(modules))
