"""5,000 events at once through the real daemon: how long until all are recorded, and how the keys follow.

The baseline is a bare loop of receive and delete over as many messages. For both, all messages are waiting when the
clock starts, which for the daemon is the start of its next tick: the emulator takes longer the more messages it holds.
Ticks are measured by Dagster itself, from the start of a tick to the last run it has created.
"""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus

from bench.drain_rate import bare_loop, send_all
from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.services import Services

EVENTS = 5_000
MEASURED_KEYS = 600
START = datetime(2024, 1, 1, tzinfo=UTC)
ALLOWED_TICK_SECONDS = 20.0
TIMEOUT_SECONDS = 600


def burst_through_the_daemon(folder: Path) -> list[Measurement]:
    with own_stack(folder) as services:
        bodies = _upload_unannounced(services)
        send_all(services, bodies)
        bare = _seconds(lambda: bare_loop(services, EVENTS))
        with serve_dagster(services.settings.home, os.environ):
            _wait(lambda: len(_ticks()) > 2)  # Dagster has started
            _set_sensor(InstigatorStatus.STOPPED)
            _wait(lambda: all(tick.end_timestamp for tick in _ticks()))
            before = time.time()
            send_all(services, bodies)
            _set_sensor(InstigatorStatus.RUNNING)
            _wait(lambda: _count(services, "SELECT count(*)::int AS n FROM kfm.inbox") >= EVENTS)
            recorded = _recorded_at(services) - min(tick.timestamp for tick in _ticks() if tick.timestamp > before)
            published = "SELECT count(*)::int AS n FROM kfm.revisions"
            _wait(lambda: _count(services, published) > 0)
            began, first = time.monotonic(), _count(services, published)
            _wait(lambda: _count(services, published) >= first + MEASURED_KEYS)
            rate = 60 * (_count(services, published) - first) / (time.monotonic() - began)
            longest = max(tick.end_timestamp - tick.timestamp for tick in _ticks() if tick.end_timestamp)
    return [
        Measurement("burst_recorded", recorded, "s", bare),
        Measurement("longest_tick_in_a_burst", longest, "s", ALLOWED_TICK_SECONDS),
        Measurement("keys_per_minute_in_a_burst", rate, "keys/min", 60 * EVENTS / bare),
    ]


def _upload_unannounced(services: Services) -> list[str]:
    """Puts an object for each hour and returns the notifications that S3 would have sent."""
    bucket = services.datasets["usgs/streamflow"].input.bucket
    s3_client().put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})

    def put(hour: int) -> str:
        key, body = streamflow_object(START + timedelta(hours=hour))
        answer = s3_client().put_object(Bucket=bucket, Key=key, Body=body)
        notice = s3_notification(
            bucket=bucket,
            object_key=key,
            etag=answer["ETag"].strip('"'),
            size=len(body),
            version_id=answer.get("VersionId"),
            event_time=START + timedelta(hours=hour),
            sequencer=f"{hour:018X}",
        )
        return json.dumps(notice)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(put, range(EVENTS)))


def _seconds(run: Callable[[], None]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def _ticks() -> list[Any]:
    with open_instance() as instance:
        return [
            tick for one in _sensors(instance) for tick in instance.get_ticks(one.instigator_origin_id, one.selector_id)
        ]


def _set_sensor(status: InstigatorStatus) -> None:
    with open_instance() as instance:
        for one in _sensors(instance):
            instance.update_instigator_state(one.with_status(status))


def _sensors(instance: dg.DagsterInstance) -> list[Any]:
    return [one for one in instance.all_instigator_state() if one.instigator_name == "kfm_ingest"]


def _recorded_at(services: Services) -> float:
    return float(
        services.database.fetch("SELECT extract(epoch FROM max(received_at))::float AS at FROM kfm.inbox")[0]["at"]
    )


def _count(services: Services, statement: str) -> int:
    return int(services.database.fetch(statement)[0]["n"])


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the daemon took too long; see the logs under the benchmark's folder")
        time.sleep(0.2)
