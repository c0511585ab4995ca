"""5,000 events at once through the real daemon: how long until all are recorded, and how the keys follow.

The baseline is a bare loop of receive and delete over as many messages. Ticks are measured by Dagster itself, from the
start of a tick to the last run it has created.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.drain_rate import bare_loop
from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.services import Services

EVENTS = 5_000
MEASURED_KEYS = 600
START = datetime(2024, 1, 1, tzinfo=UTC)
ALLOWED_TICK_SECONDS = 20.0
TIMEOUT_SECONDS = 600


def burst_through_the_daemon(folder: Path) -> list[Measurement]:
    with own_stack(folder) as services:
        upload(services, EVENTS)
        began = time.monotonic()
        bare_loop(services, EVENTS)
        bare = time.monotonic() - began
        upload(services, EVENTS)
        with serve_dagster(services.settings.home, os.environ):
            _wait(lambda: _count(services, "SELECT count(*)::int AS n FROM kfm.inbox") > 0)
            began = time.monotonic()
            _wait(lambda: _count(services, "SELECT count(*)::int AS n FROM kfm.inbox") >= EVENTS)
            recorded = time.monotonic() - began
            published = "SELECT count(*)::int AS n FROM kfm.revisions"
            _wait(lambda: _count(services, published) > 0)
            began, before = time.monotonic(), _count(services, published)
            _wait(lambda: _count(services, published) >= before + MEASURED_KEYS)
            rate = 60 * (_count(services, published) - before) / (time.monotonic() - began)
        longest = _longest_tick()
    return [
        Measurement("burst_recorded", recorded, "s", bare),
        Measurement("longest_tick_in_a_burst", longest, "s", ALLOWED_TICK_SECONDS),
        Measurement("keys_per_minute_in_a_burst", rate, "keys/min", 60 * EVENTS / bare),
    ]


def upload(services: Services, count: int) -> None:
    """Puts an object for each hour; S3 sends the notifications."""
    bucket = services.datasets["usgs/streamflow"].input.bucket

    def put(hour: int) -> None:
        key, body = streamflow_object(START + timedelta(hours=hour))
        s3_client().put_object(Bucket=bucket, Key=key, Body=body)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(count)))


def _longest_tick() -> float:
    """Returns the seconds of the longest tick that has ended."""
    with open_instance() as instance:
        [sensor] = [one for one in instance.all_instigator_state() if one.instigator_name == "kfm_ingest"]
        ticks = instance.get_ticks(sensor.instigator_origin_id, sensor.selector_id)
    return max(tick.end_timestamp - tick.timestamp for tick in ticks if tick.end_timestamp)


def _count(services: Services, statement: str) -> int:
    return int(services.database.fetch(statement)[0]["n"])


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the daemon took too long; see the logs under the benchmark's folder")
        time.sleep(0.2)
