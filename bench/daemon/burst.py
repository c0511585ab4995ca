"""5,000 events at once through the real daemon: how long until all are recorded, and how the keys follow.

The baseline is a bare loop of receive and delete over as many messages. Ticks are measured by Dagster itself, from the
start of a tick to the last run it has created.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
        with _sending(services, bodies):
            bare = _seconds(lambda: bare_loop(services, EVENTS))
        with serve_dagster(services.settings.home, os.environ):
            _wait(lambda: len(_ticks()) > 2)  # Dagster has started
            with _sending(services, bodies):
                recorded = _seconds(
                    lambda: _wait(lambda: _count(services, "SELECT count(*)::int AS n FROM kfm.inbox") >= EVENTS)
                )
            published = "SELECT count(*)::int AS n FROM kfm.revisions"
            _wait(lambda: _count(services, published) > 0)
            began, before = time.monotonic(), _count(services, published)
            _wait(lambda: _count(services, published) >= before + MEASURED_KEYS)
            rate = 60 * (_count(services, published) - before) / (time.monotonic() - began)
            longest = max(_ticks())
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


@contextmanager
def _sending(services: Services, bodies: list[str]) -> Iterator[None]:
    """Sends the messages meanwhile, so that both loops have the sender beside them."""
    sending = threading.Thread(target=send_all, args=(services, bodies))
    sending.start()
    yield
    sending.join()


def _seconds(run: Callable[[], None]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def _ticks() -> list[float]:
    """Returns the seconds of each tick that has ended."""
    with open_instance() as instance:
        sensors = [one for one in instance.all_instigator_state() if one.instigator_name == "kfm_ingest"]
        ticks = [tick for one in sensors for tick in instance.get_ticks(one.instigator_origin_id, one.selector_id)]
    return [tick.end_timestamp - tick.timestamp for tick in ticks if tick.end_timestamp]


def _count(services: Services, statement: str) -> int:
    return int(services.database.fetch(statement)[0]["n"])


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the daemon took too long; see the logs under the benchmark's folder")
        time.sleep(0.2)
