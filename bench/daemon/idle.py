"""How long a single event takes to its Item through the daemon while everything else is idle: the median of several."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services

START = datetime(2025, 1, 1, tzinfo=UTC)
EVENTS = 11
ALLOWED_SECONDS = 5.0
TIMEOUT_SECONDS = 120


def event_to_item_when_idle(folder: Path) -> Measurement:
    with own_stack(folder) as services, serve_dagster(services.settings.home, os.environ):
        # The first one waits for Dagster to start. Pauses of odd lengths, so that no event meets the same moment.
        seconds = [_seconds_to_item(services, number, pause=1 + number * 1.7 % 5) for number in range(EVENTS + 1)][1:]
    return Measurement("event_to_item_when_idle", median(seconds), "s", ALLOWED_SECONDS)


def _seconds_to_item(services: Services, number: int, pause: float) -> float:
    time.sleep(pause)
    began = time.monotonic()
    request = SampleRequest("usgs/streamflow", START + timedelta(hours=number), 1)
    [key] = emit_samples(services, request, Topic(services.settings.topic), lambda _: None)
    while not services.database.fetch("SELECT FROM kfm.revisions WHERE key = %(key)s", {"key": key}):
        if time.monotonic() - began > TIMEOUT_SECONDS:
            raise SystemExit("the daemon took too long; see the logs under the benchmark's folder")
        time.sleep(0.1)
    return time.monotonic() - began
