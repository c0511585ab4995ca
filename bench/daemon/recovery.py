"""How long work rests after every process of Dagster was killed: 240 keys, started again as `kfm up` does.

The clock runs from the second start, so the start of Dagster counts. The baseline is the undisturbed time for as many
keys on the same stack. No key may be lost or published twice.
"""

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from bench.measurement import Measurement
from bench.stack import own_stack
from kfm_pipelines.local.dagster import serve_recovered
from kfm_pipelines.producer.cli import SampleRequest, emit_samples
from kfm_pipelines.producer.upload import Topic
from kfm_pipelines.services import Services

KEYS = 240
START = datetime(2025, 1, 1, tzinfo=UTC)
TIMEOUT_SECONDS = 600
ALLOWED_SECONDS = 30.0


def recovery_after_a_kill(folder: Path) -> list[Measurement]:
    with own_stack(folder) as services:
        undisturbed_keys = _emit(services, START)
        began = time.monotonic()
        with serve_recovered(services):
            _wait(services, lambda: _published(services, undisturbed_keys) == KEYS)
        undisturbed = time.monotonic() - began
        keys = _emit(services, START + timedelta(days=30))
        with serve_recovered(services):
            _wait(services, lambda: _published(services, keys) >= KEYS // 4)
            kill_dagster()
        before = _published(services, keys)
        began = time.monotonic()
        with serve_recovered(services):
            _wait(services, lambda: _published(services, keys) > before)
            first = time.monotonic() - began
            _wait(services, lambda: _published(services, keys) == KEYS)
            everything = time.monotonic() - began
        _refuse_doubles(services, keys)
    return [
        Measurement("first_key_after_a_kill", first, "s", ALLOWED_SECONDS),
        Measurement("all_keys_after_a_kill", everything, "s", undisturbed),
    ]


def kill_dagster() -> None:
    """Kills every process below this one that belongs to Dagster, without a chance to clean up."""
    below = psutil.Process().children(recursive=True)
    of_dagster = [one for one in below if _is_dagster(one)]
    for process in of_dagster:
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(of_dagster, timeout=10)


def _is_dagster(process: psutil.Process) -> bool:
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "dagster" in line or "multiprocessing" in line


def _emit(services: Services, start: datetime) -> list[str]:
    samples = SampleRequest("usgs/streamflow", start, KEYS)
    return emit_samples(services, samples, Topic(services.settings.topic), lambda _: None)


def _published(services: Services, keys: list[str]) -> int:
    statement = "SELECT count(DISTINCT key)::int AS n FROM kfm.revisions WHERE key = ANY(%(keys)s)"
    return int(services.database.fetch(statement, {"keys": keys})[0]["n"])


def _refuse_doubles(services: Services, keys: list[str]) -> None:
    [row] = services.database.fetch(
        "SELECT count(*) AS applied FROM kfm.wal WHERE key = ANY(%(keys)s) AND outcome = 'APPLIED'", {"keys": keys}
    )
    if row["applied"] != KEYS:
        raise SystemExit(f"{row['applied']} publications of {KEYS} keys")


def _wait(services: Services, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"it took too long; see the logs in {services.settings.home}")
        time.sleep(0.2)
