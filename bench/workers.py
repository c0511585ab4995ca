"""Two workers against one: keys published a minute by `kfm work --once`, the start of its processes included.

The store is that of KFM_STORE_URL, if the caller sets it, such as a bucket with latency.
"""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services

KEYS = 400
START = datetime(2025, 1, 1, tzinfo=UTC)
COMMAND = [sys.executable, "-c", "from kfm_pipelines.cli import main; main()", "work", "--once", "--json"]


def two_workers_against_one(folder: Path) -> Measurement:
    store = os.environ.get("KFM_STORE_URL")
    with own_stack(folder) as services:
        if store:
            os.environ["KFM_STORE_URL"] = store
        rates = [_keys_per_minute(services, START + timedelta(days=30 * count), count) for count in (1, 2)]
    return Measurement("two_workers_against_one", rates[1], "keys/min", rates[0])


def _keys_per_minute(services: Services, start: datetime, workers: int) -> float:
    samples = SampleRequest("usgs/streamflow", start, KEYS)
    keys = emit_samples(services, samples, Topic(services.settings.topic), lambda _: None)
    began = time.monotonic()
    subprocess.run([*COMMAND, "--workers", str(workers)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    [row] = services.database.fetch(
        "SELECT count(*)::int AS applied FROM kfm.wal WHERE key = ANY(%(keys)s) AND outcome = 'APPLIED'", {"keys": keys}
    )
    if row["applied"] != KEYS:
        raise SystemExit(f"{row['applied']} publications of {KEYS} keys")
    return 60 * KEYS / seconds
