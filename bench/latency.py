"""S3 thirty milliseconds away and Postgres one: keys a minute against those without latency, with one worker and two.

A small proxy holds back every request to S3 and every message to Postgres. The rate is that of the log, from the first
transaction to the last commit, so that the start of a process does not count.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.measurement import Measurement
from bench.stack import emit_streamflow, own_stack, postgres_behind_proxy, run_worker
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.services import Services
from kfm_pipelines_tests.fixtures.proxy import open_proxy

KEYS = 800
BUCKET = "kfm-bench-store"
S3_SECONDS, POSTGRES_SECONDS = 0.03, 0.001


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
    s3 = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    with (
        open_proxy(str(s3.hostname), s3.port or 80, delay_seconds=S3_SECONDS) as to_s3,
        postgres_behind_proxy(services, delay_seconds=POSTGRES_SECONDS) as (_, variables),
    ):
        yield {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{to_s3.port}", **variables}


def _keys_per_minute(services: Services, number: int, workers: int, variables: Mapping[str, str]) -> float:
    keys = emit_streamflow(services, number * KEYS, KEYS)
    run_worker(variables, workers)
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
