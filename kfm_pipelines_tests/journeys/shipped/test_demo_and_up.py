"""`kfm demo` and `kfm up` on a machine with nothing but this package."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.telemetry.line_files import schema_violation
from kfm_pipelines.telemetry.metrics.names import METRICS
from kfm_pipelines_tests.fixtures.sites.command import COMMAND, fresh_kfm, kfm
from kfm_pipelines_tests.fixtures.sites.homes import temporary_home
from kfm_pipelines_tests.fixtures.sites.processes import WITH_IGNORED_SIGNALS, eventually, mentioning
from kfm_pipelines_tests.fixtures.sites.scrape import scraped
from kfm_pipelines_tests.fixtures.telemetry.home_files import SCHEMAS, log_lines, records, totals

LISTED = {
    "publish_event", "sns_to_sqs_delivery", "sqs_receive", "contract_validation", "idempotent_write", "wal_replay",
    "extract", "fetch", "transform", "mask", "validate", "stac_write", "publish",
}  # fmt: skip
POINTERS = ("KFM_POSTGRES_URL", "AWS_ENDPOINT_URL", "KFM_STORE_URL", "DAGSTER_HOME", "KFM_DAGSTER_POSTGRES_URL")


@pytest.fixture
def home() -> Iterator[Path]:
    with temporary_home() as folder:
        yield folder


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    bare = {name: value for name, value in os.environ.items() if name not in POINTERS}
    return {**bare, "KFM_HOME": str(home)}


@pytest.mark.slow
def test_the_demo_publishes_a_day_and_up_serves_it_until_a_signal(home: Path, environment: dict[str, str]) -> None:
    first = fresh_kfm(environment, "demo", "--json", "--timeout", "500", seconds=600).json
    assert (first["published_now"], first["published_keys"], first["duplicates_ignored"]) == (32, 32, 32)
    assert first["awaiting_review"] == ["heritage-sites:kansas_statewide:5:2026-05:v1-0-0"]
    assert len(list((home / "data/processed/usgs-streamflow").glob("*.parquet"))) == 24
    assert [path.stem for path in (home / "data/processed/atlas-drought-streamflow").glob("*.parquet")] == [
        "atlas-drought-streamflow:kansas_statewide:5:2025-W49:v1-0-0"
    ]
    _assert_every_dataset_is_on_the_map(home, first["map"])
    assert eventually(lambda: not mentioning(home))

    with _up_with_ignored_signals(environment) as (up, places):
        assert places["ui"].startswith("http://127.0.0.1:")
        _assert_telemetry_is_complete(home, environment)
        second = kfm(environment, "demo", "--timeout", "500", seconds=600)  # uses the stack and Dagster of `kfm up`
        assert second.code == 0
        assert "nothing new to publish" in second.out
        assert "36 duplicates ignored" in second.out  # objects of providers have no versions, so they are all known
        assert "queue_depth_messages{" in scraped(places["metrics"])  # from a process of Dagster
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0
    assert eventually(lambda: not mentioning(home))


def _assert_every_dataset_is_on_the_map(home: Path, picture: str) -> None:
    published = {path.parent.parent.name for path in (home / "data/catalog").glob("*/items/*.json")}
    expected = {name.replace("/", "-") for name in SAMPLES} | {"atlas-drought-streamflow"}
    assert published == expected - {"heritage-sites"}
    with Image.open(picture) as opened:
        assert opened.size[0] > 1000


@contextmanager
def _up_with_ignored_signals(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Starts `kfm up` as a shell does in the background of a script."""
    command = [*WITH_IGNORED_SIGNALS, *COMMAND, "up", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            yield up, json.loads("".join(iter(up.stdout.readline, "}\n")) + "}")
        finally:
            up.kill()


def _assert_telemetry_is_complete(home: Path, environment: dict[str, str]) -> None:
    """Telemetry comes from several processes that have ended: the command, the sensor's ticks, the runs."""
    metrics = totals(home)
    assert [metric.name for metric in METRICS if not metrics.series(metric.name)] == []
    assert metrics.counter("telemetry_dropped_total") == 0
    for schema in SCHEMAS:
        of_it = records(home, schema)
        assert of_it
        assert {schema_violation(shipped_path("resources"), schema, one) for one in of_it} == {None}
    key = "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0"
    trace_output = kfm(environment, "trace", key)
    assert {line.split()[4] for line in trace_output.out.splitlines()[1:]} >= LISTED
    trace = trace_output.out.split()[1]
    assert trace in kfm(environment, "status", key).out
    assert {line["trace_id"] for line in log_lines(home) if line.get("idempotency_key") == key} == {trace}
    hour = kfm(environment, "status", "--json").json["telemetry"]
    assert hour["messages"]["per_minute"] > 0
    assert {"p50", "p95", "p99"} <= hour["latency_seconds"]["end_to_end"].keys()
    assert hour["burn_rate"]
    assert hour["watermark_lag_seconds"].keys() == {*SAMPLES, "atlas/drought-streamflow"}
