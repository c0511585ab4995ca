"""A year of hours: how long it takes to plan, and how fast it is replayed against keys that events ask for.

The objects of the year lie in the bucket and nobody has told of them, as in a historical load. Both rates are through
the real daemon, in runs over 200 keys.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.daemon.keys_per_minute import keys_per_minute
from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.dispatch.partitions import register_partitions
from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.operations.replay.commands import start
from kfm_pipelines.operations.replay.plan import ReplayRequest, make_plan
from kfm_pipelines.operations.replay.register import register_windows
from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.services import Services, set_up
from kfm_pipelines.state import replays
from kfm_pipelines.state.replays import ReplayTerms

YEAR = datetime(2024, 1, 1, tzinfo=UTC)
HOURS = 8760
ASKED_SECONDS = 5.0
REPLAYED_KEYS = 600
EVENTS_START = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT_SECONDS = 900


def a_year_replayed(folder: Path) -> list[Measurement]:
    with own_stack(folder, KFM_BATCH_SIZE="200") as services:
        upload_unannounced(services, YEAR, HOURS)
        planned = _seconds_to_plan(services)
        replayed = _keys_per_minute_replayed(services)
        asked_for = keys_per_minute(services, EVENTS_START, REPLAYED_KEYS)
    return [
        Measurement("planning_a_year_of_hours", planned, "s", ASKED_SECONDS),
        Measurement("replayed_against_asked_for_by_events", replayed, "keys/min", asked_for),
    ]


def upload_unannounced(services: Services, start: datetime, hours: int) -> None:
    """Put the objects while S3 has nobody to tell of them."""
    bucket = services.datasets["usgs/streamflow"].input.bucket
    s3_client().put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})

    def put(hour: int) -> None:
        key, body = streamflow_object(start + timedelta(hours=hour))
        s3_client().put_object(Bucket=bucket, Key=key, Body=body)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(hours)))
    set_up(services, cloud=True)


def _seconds_to_plan(services: Services) -> float:
    """What `kfm replay plan --register` does; in this order also because an earlier plan would have made the keys."""
    dataset = services.datasets["usgs/streamflow"]
    end = YEAR + timedelta(hours=HOURS)
    began = time.perf_counter()
    registered = register_windows(services, dataset, YEAR, end, "bench")
    with open_instance() as instance:
        register_partitions(instance, dataset, registered.keys)
    make_plan(services, ReplayRequest(dataset.dataset, YEAR, end, "upgrade"), "bench")
    return time.perf_counter() - began


def _keys_per_minute_replayed(services: Services) -> float:
    wish = ReplayRequest("usgs/streamflow", YEAR, YEAR + timedelta(hours=REPLAYED_KEYS), "upgrade")
    plan = make_plan(services, wish, "bench")
    start(services, plan.id, ReplayTerms(batch=REPLAYED_KEYS), "bench")
    with serve_dagster(services.settings.home, os.environ):
        _wait(services, plan.id)
    [row] = services.database.fetch(
        """
        SELECT count(*) AS published, extract(epoch FROM max(r.applied_at) - (
            SELECT min(asked_at) FROM kfm.replay_batches WHERE replay = %(replay)s))::float AS seconds
        FROM kfm.replay_keys k JOIN kfm.revisions r ON r.key = k.key WHERE k.replay = %(replay)s
        """,
        {"replay": plan.id},
    )
    if row["published"] != REPLAYED_KEYS:
        raise SystemExit(f"{row['published']} of {REPLAYED_KEYS} keys were published")
    return float(60 * REPLAYED_KEYS / row["seconds"])


def _wait(services: Services, replay: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while replays.read(services.database, replay).state == "running":
        if time.monotonic() > deadline:
            raise SystemExit("the daemon took too long; see the logs under the benchmark's folder")
        time.sleep(0.5)
