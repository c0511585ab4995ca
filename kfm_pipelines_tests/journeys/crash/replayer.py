"""A process that executes a replay until it sends itself a signal: `… crash.replayer SIGKILL after ask KEY 1 ID`.

Like `killer`, with the steps of a replay as further places.
"""

import signal
import sys

from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.operations.replay import advance, commands, first_keys, tables
from kfm_pipelines.operations.replay.jobs import LocalBatchRunner, run_in_process
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import ReplayTerms
from kfm_pipelines_tests.journeys.crash import killer
from kfm_pipelines_tests.journeys.crash.killer import Point

STEPS: tuple[tuple[str, object, str], ...] = (
    ("ask", tables, "create_batch"),
    ("run", LocalBatchRunner, "submit"),
    ("settle", tables, "settle_keys"),
    ("end", tables, "end_batch"),
    ("records", advance, "write_records"),
    ("canary", first_keys, "record_canary"),
    ("move", replays, "move"),
)


def main(name: str, moment: str, place: str, key: str, nth: str, replay: str) -> None:
    point = Point(signal.Signals[name], moment, place, key, int(nth))
    for step, owner, function in STEPS:
        setattr(owner, function, killer._watched_call(point, step, getattr(owner, function)))
    killer.install(point)
    services = Services(load_settings())
    if replays.read(services.database, replay).state != "running":
        commands.start(services, replay, ReplayTerms(here=True, batch=2, canary=1), "ana")
    with open_instance() as instance:
        runner = LocalBatchRunner(instance, services, build_definitions(services.settings.resources))
        run_in_process(services, replay, runner)


if __name__ == "__main__":
    main(*sys.argv[1:])
