"""One worker over 5,000 keys: whether its memory grows, and how many bytes a key leaves in each part of the database.

Memory is the largest resident set of the worker while it publishes a thousand keys.
"""

import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from bench.measurement import Measurement
from bench.stack import emit_streamflow, own_stack, start_worker
from kfm_pipelines.services import Services

KEYS = 5_000
STEP = 1_000
RUN_KEYS = 200
ALLOWED_MEBIBYTES = 500
MEBIBYTE = 1024 * 1024
# Dagster's tables are in the schema `public`, ours in `kfm`.
SIZES = """
    SELECT schemaname = 'kfm' AS ours, sum(pg_total_relation_size(relid))::float AS bytes
    FROM pg_stat_user_tables GROUP BY 1
"""


def one_worker_over_many_keys(folder: Path) -> list[Measurement]:
    with own_stack(folder) as services:
        emit_streamflow(services, 0, RUN_KEYS)
        of_a_run = max(_peaks(services, RUN_KEYS, RUN_KEYS))
        emit_streamflow(services, RUN_KEYS, KEYS)
        before = _bytes(services)
        peaks = _peaks(services, KEYS, STEP)
        after = _bytes(services)
    ours, dagsters = ((after[schema] - before[schema]) / KEYS for schema in (True, False))
    return [
        Measurement("memory_of_a_run_of_200_keys", of_a_run, "MiB", ALLOWED_MEBIBYTES),
        Measurement("memory_after_5000_keys", peaks[-1], "MiB", peaks[0]),
        Measurement("bytes_of_a_key_in_our_tables", ours, "bytes/key", dagsters),
    ]


def _peaks(services: Services, keys: int, step: int) -> list[float]:
    """Runs a worker and returns the peak for each `step` of the keys, in order."""
    first = _published(services)
    peaks = [0.0] * (keys // step)
    worker = start_worker({})
    ended = threading.Event()

    def sample() -> None:
        process = psutil.Process(worker.pid)
        while not ended.wait(0.2):
            try:
                resident = process.memory_info().rss / MEBIBYTE
            except psutil.NoSuchProcess:
                return
            place = min((_published(services) - first) // step, len(peaks) - 1)
            peaks[place] = max(peaks[place], resident)

    sampler = threading.Thread(target=sample)
    sampler.start()
    if worker.wait():
        raise SystemExit(f"the worker ended with {worker.returncode}")
    ended.set()
    sampler.join()
    if _published(services) != first + keys:
        raise SystemExit(f"{_published(services) - first} of {keys} keys were published")
    return peaks


def _published(services: Services) -> int:
    return int(services.database.fetch("SELECT count(*)::int AS n FROM kfm.revisions")[0]["n"])


def _bytes(services: Services) -> dict[bool, float]:
    time.sleep(1)  # sizes are those of the files, which lag behind
    return {row["ours"]: row["bytes"] for row in services.database.fetch(SIZES)}
