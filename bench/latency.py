"""S3 thirty milliseconds away and Postgres one: keys a minute against those without latency, with one worker and two.

A small proxy holds back every request to S3 and every message to Postgres. The rate is that of the log, from the first
transaction to the last commit, so that the start of a process does not count.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.inbox.drain import drain_all
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services
from kfm_pipelines_tests.fixtures.proxy import open_proxy

START = datetime(2025, 1, 1, tzinfo=UTC)
KEYS = 400
BUCKET = "kfm-bench-store"
S3_SECONDS, POSTGRES_SECONDS = 0.03, 0.001
COMMAND = [sys.executable, "-c", "from kfm_pipelines.cli import main; main()", "work", "--once", "--json"]


def s3_with_latency(folder: Path) -> list[Measurement]:
    with own_stack(folder, KFM_STORE_URL=f"s3://{BUCKET}/published") as services:
        s3_client().create_bucket(Bucket=BUCKET)
        near = _keys_per_minute(services, 0, 1, {})
        with _far_away(services) as variables:
            far, two = (_keys_per_minute(services, workers, workers, variables) for workers in (1, 2))
    return [
        Measurement("s3_with_latency", far, "keys/min", near),
        Measurement("workers_with_latency", two, "keys/min", far),
    ]


@contextmanager
def _far_away(services: Services) -> Iterator[Mapping[str, str]]:
    """Yields variables for processes that reach S3 and Postgres through the proxies."""
    s3, postgres = urlsplit(os.environ["AWS_ENDPOINT_URL"]), urlsplit(services.settings.postgres_url)
    with (
        open_proxy(str(s3.hostname), s3.port or 80, delay_seconds=S3_SECONDS) as to_s3,
        open_proxy(str(postgres.hostname), postgres.port or 5432, delay_seconds=POSTGRES_SECONDS) as to_postgres,
    ):
        behind = postgres.netloc.replace(f":{postgres.port}", f":{to_postgres.port}")
        yield {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{to_s3.port}",
            "KFM_POSTGRES_URL": postgres._replace(netloc=behind).geturl(),
        }


def _keys_per_minute(services: Services, number: int, workers: int, variables: Mapping[str, str]) -> float:
    samples = SampleRequest("usgs/streamflow", START + timedelta(days=30 * number), KEYS)
    keys = emit_samples(services, samples, Topic(services.settings.topic), lambda _: None)
    drain_all(services, budget_seconds=600)
    command = [*COMMAND, "--workers", str(workers)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **variables})
    [row] = services.database.fetch(
        """
        SELECT count(*) FILTER (WHERE outcome = 'APPLIED') AS applied,
               extract(epoch FROM max(at) - min(at))::float AS seconds
        FROM kfm.wal WHERE key = ANY(%(keys)s)
        """,
        {"keys": keys},
    )
    if row["applied"] != KEYS:
        raise SystemExit(f"{row['applied']} publications of {KEYS} keys")
    return float(60 * KEYS / row["seconds"])
