"""Has the sinks show what the outbox asks for. A run does it for its own keys, and each tick for what is left."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph import sink as graph
from kfm_pipelines.sinks.table import sink as table
from kfm_pipelines.sinks.table.sink import TICK
from kfm_pipelines.stages.publish.release import sinks_of
from kfm_pipelines.state import outbox
from kfm_pipelines.state.outbox import Sink

log = logging.getLogger(__name__)
KEYS_AT_ONCE = 200
KEYS_AT_ONCE_IN_A_TICK = 50  # it must not take long
SECONDS_PER_TICK = 5.0

# Makes the sink show the current state of these keys, for the writer of this name. Returns what prevented it, by key.
Write = Callable[[Services, Dataset, Sequence[str], str], dict[str, str]]
WRITERS: dict[Sink, Write] = {
    Sink.TABLE: table.write,
    Sink.GRAPH: lambda services, dataset, keys, _: graph.write(services, dataset, keys),
}


def flush_due(services: Services) -> list[str]:
    """A chore of the tick. Returns problems."""
    deadline = time.monotonic() + SECONDS_PER_TICK
    problems: list[str] = []
    for sink in WRITERS:
        for name in outbox.datasets_due(services.database, sink):
            if name not in services.datasets:
                continue
            dataset = services.datasets[name]
            if sink in sinks_of(services.settings, dataset):
                problems += _flush(services, dataset, sink, KEYS_AT_ONCE_IN_A_TICK, deadline)
            elif sink is Sink.TABLE:  # the dataset has none any more
                outbox.forget(services.database, sink, name)
    return problems


def flush_now(services: Services, dataset: Dataset, sink: Sink) -> list[str]:
    """Writes all that is asked for of a dataset, due or not. Returns problems."""
    outbox.make_due(services.database, sink, dataset.dataset)
    return _flush(services, dataset, sink, KEYS_AT_ONCE, math.inf)


def _flush(services: Services, dataset: Dataset, sink: Sink, limit: int, deadline: float) -> list[str]:
    while time.monotonic() < deadline:
        changes = outbox.due(services.database, sink, dataset.dataset, limit=limit)
        if not changes:
            break
        try:
            problems = _write(services, dataset, sink, list(changes), changes, TICK)
        except KfmError as error:
            return [f"the {sink} of {dataset.dataset} could not be written: {error}"]
        if problems:
            key, reason = next(iter(problems.items()))
            waiting = "1 key waits" if len(problems) == 1 else f"{len(problems)} keys wait"
            return [f"{waiting} for the {sink} of {dataset.dataset}: {key}: {reason}"]
    return []


def write_now(
    services: Services, dataset: Dataset, sink: Sink, keys: Sequence[str], writer: str = TICK
) -> dict[str, str]:
    """Makes the sink show the current state of these keys, whether the outbox asks for them or not. Returns what
    prevented it, by key; the outbox has those again."""
    changes = outbox.due(services.database, sink, dataset.dataset, keys=keys, limit=len(keys))
    return _write(services, dataset, sink, keys, changes, writer)


def _write(
    services: Services, dataset: Dataset, sink: Sink, keys: Sequence[str], changes: Mapping[str, int], writer: str
) -> dict[str, str]:
    try:
        problems = WRITERS[sink](services, dataset, keys, writer)
    except Exception as error:
        log.debug("the %s of %s could not be written", sink, dataset.dataset, exc_info=True)
        problems = dict.fromkeys(keys, str(error) or type(error).__name__)
    written = {key: change for key, change in changes.items() if key not in problems}
    with services.database.transaction() as connection:
        outbox.acknowledge(connection, sink, written)
        outbox.request(connection, [sink], dataset.dataset, problems.keys() - changes.keys())
    if problems:
        log.warning(
            "%d keys wait for the %s of %s: %s", len(problems), sink, dataset.dataset, next(iter(problems.values()))
        )
        outbox.postpone(services.database, sink, problems)
    return problems
