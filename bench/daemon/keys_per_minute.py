"""Keys published a minute through the real daemon: runs over 200 keys against one run per key.

The clock runs from the first request for a run to the last commit, so the start of every run's process counts. There
are enough keys for both to be at it for a minute.
"""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.operations.status.tables import keys_in_progress
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services

START = datetime(2025, 1, 1, tzinfo=UTC)
BATCHED_KEYS = 3000
SINGLE_KEYS = 24
TIMEOUT_SECONDS = 600


def keys_per_minute_batched(folder: Path) -> Measurement:
    with own_stack(folder, KFM_BATCH_SIZE="1") as services:
        one_by_one = keys_per_minute(services, START, SINGLE_KEYS)
    with own_stack(folder, KFM_BATCH_SIZE="200") as services:
        batched = keys_per_minute(services, START + timedelta(days=30), BATCHED_KEYS)
    return Measurement("keys_per_minute_batched", batched, "keys/min", one_by_one)


def keys_per_minute(services: Services, start: datetime, count: int) -> float:
    # All messages are waiting before the daemon starts, so that it finds a full queue.
    keys = emit_samples(
        services, SampleRequest("usgs/streamflow", start, count), Topic(services.settings.topic), _ignore
    )
    with serve_dagster(services.settings.home, os.environ):
        _wait(services, keys)
    [row] = services.database.fetch(
        """
        SELECT count(*) AS published, extract(epoch FROM max(r.applied_at) - (
            SELECT min(d.requested_at) FROM kfm.dispatches d WHERE d.keys && %(keys)s::text[]))::float AS seconds
        FROM kfm.revisions r WHERE r.key = ANY(%(keys)s)
        """,
        {"keys": keys},
    )
    if row["published"] != count:
        raise SystemExit(f"{row['published']} of {count} keys were published")
    return float(60 * count / row["seconds"])


def _wait(services: Services, keys: list[str]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while keys_in_progress(services.database, keys):
        if time.monotonic() > deadline:
            raise SystemExit("the daemon took too long; see the logs under the benchmark's folder")
        time.sleep(0.5)


def _ignore(_: int) -> None:
    """No progress bar."""
