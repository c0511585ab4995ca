"""What telling costs: a run over 200 keys with all telemetry, against the same without any.

Without means without: no metrics, spans, records, log or energy ledger. Runs take turns, so that a machine that slows
down slows down both; the middle one of each counts.
"""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from unittest.mock import patch

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.definitions import CHORES, build_definitions
from kfm_pipelines.dispatch.worker import work
from kfm_pipelines.inbox import telemetry as arrivals
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.orchestration.resource import services_of_process
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.stages.telemetry import spans

START = datetime(2025, 1, 1, tzinfo=UTC)
KEYS = 200
ROUNDS = 6  # an even number, so that each comes as often as the other


def telemetry_of_a_run(folder: Path) -> Measurement:
    seconds: dict[str, list[float]] = {"on": [], "off": []}
    with own_stack(folder, KFM_BATCH_SIZE=str(KEYS)) as services:
        _run(services, START, "on")  # the first one loads what the others find
        for number in range(1, 2 * ROUNDS + 1):
            # on off off on on off …: neither is always the one on the larger tables
            which = ("on", "off", "off", "on")[number % 4]
            seconds[which].append(_run(services, START + timedelta(hours=number * KEYS), which))
    return Measurement("telemetry_of_a_run", median(seconds["on"]), "s", median(seconds["off"]))


def _run(services: Services, start: datetime, telemetry: str) -> float:
    emit_samples(
        services, SampleRequest("usgs/streamflow", start, KEYS), Topic(services.settings.topic), lambda _: None
    )
    drain_all(services, budget_seconds=600)
    os.environ.update({"KFM_TELEMETRY": telemetry, "KFM_LOG_LEVEL": "info" if telemetry == "on" else "off"})
    own = services_of_process(load_settings())
    before = _telemetry_bytes(own)
    definitions = build_definitions(own.settings.resources)
    begun = time.monotonic()
    if telemetry == "on":
        worked = work(own, definitions, CHORES, once=True)
    else:
        with (
            patch.object(spans, "record_usage", _record_nothing),
            patch.object(arrivals, "record_usage", _record_nothing),
        ):
            worked = work(own, definitions, CHORES, once=True)
    taken = time.monotonic() - begun
    if worked.counts()["published"] != KEYS:
        raise SystemExit(f"{worked.counts()} instead of {KEYS} published keys")
    if (_telemetry_bytes(own) > before) != (telemetry == "on"):
        raise SystemExit(f"with telemetry {telemetry} {_telemetry_bytes(own) - before} bytes were told")
    return taken


def _telemetry_bytes(services: Services) -> int:
    own_files = services.settings.telemetry_folder.rglob("*")
    return sum(path.stat().st_size for path in own_files if path.is_file())


def _record_nothing(*_: object, **__: object) -> list[object]:
    return []
