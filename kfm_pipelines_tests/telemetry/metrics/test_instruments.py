"""Labels stay bounded whatever producers send; numbers that are not finite are dropped and counted."""

from importlib.metadata import version
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest

from kfm_pipelines.telemetry.metrics.instruments import MAX_LABEL_LENGTH, MAX_SERIES, OTHER, Instruments
from kfm_pipelines.telemetry.metrics.names import METRICS
from kfm_pipelines.telemetry.metrics.reader import Totals, read_totals
from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.signals import settings_in

# Identifiers that could reach a label by mistake.
IDENTITIES = [
    "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0",
    "s3://kfm-ingest/usgs/streamflow/2025/12/04/03.csv",
    str(UUID(int=2**127 + 12345)),
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "9F86D081884C7D659A2FEAA0",
    "arn:aws:sns:us-east-1:000000000000:kfm-ingest",
    "d41d8cd98f00b204e9800998ecf8427e-12",
    "sha256:9f86d081884c7d65",
    "line\nbreak",
    "\ud800",
]
NAMES = ["usgs/streamflow", "kfm-ingest.fifo", "t3f2a1b0c9d8e-dlq.fifo", "usgs/streamflow:kansas", "end_to_end", "0.95"]


def count_with(home: Path, labels: list[str]) -> Totals:
    telemetry = open_telemetry(settings_in(home))
    for label in labels:
        telemetry.metrics.count("messages_received_total", queue=label)
    telemetry.close()
    return read_totals(home / "telemetry")


def test_identifiers_do_not_become_labels(tmp_path: Path) -> None:
    totals = count_with(tmp_path, IDENTITIES)
    assert totals.by_label("messages_received_total", "queue") == {OTHER: len(IDENTITIES)}
    written = (tmp_path / "telemetry" / "metrics.jsonl").read_bytes()
    assert not [identity for identity in IDENTITIES if identity.encode(errors="replace") in written]


def test_gauges_are_written_once(tmp_path: Path) -> None:
    """Depends on a private name of opentelemetry-sdk 1.45, see `_delta_temporality`."""
    telemetry = open_telemetry(settings_in(tmp_path))
    telemetry.metrics.set("queue_depth_messages", 7, queue="q")
    telemetry.flush()
    telemetry.metrics.count("event_dedup_hits")
    telemetry.close()
    written = (tmp_path / "telemetry" / "metrics.jsonl").read_text()
    assert written.count("queue_depth_messages") == 1, f"opentelemetry-sdk {version('opentelemetry-sdk')}"


def test_names_become_labels(tmp_path: Path) -> None:
    assert set(count_with(tmp_path, NAMES).by_label("messages_received_total", "queue")) == set(NAMES)


def test_long_names_are_truncated(tmp_path: Path) -> None:
    name = "x" * 5000
    assert count_with(tmp_path, [name]).by_label("messages_received_total", "queue") == {"x" * MAX_LABEL_LENGTH: 1}


def test_names_beyond_the_limit_are_counted_together(tmp_path: Path) -> None:
    names = [f"made-up-{number}" for number in range(5000)]
    counted = count_with(tmp_path, names + names[:10]).by_label("messages_received_total", "queue")
    assert len(counted) == MAX_SERIES + 1
    assert counted[OTHER] == 5000 - MAX_SERIES
    assert counted["made-up-3"] == 2


def test_threads_do_not_create_more_series(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))

    def count(who: int) -> None:
        for number in range(400):
            telemetry.metrics.count("messages_received_total", queue=f"{who}-{number}")

    threads = [Thread(target=count, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    telemetry.close()
    totals = read_totals(tmp_path / "telemetry")
    assert len(totals.counters["messages_received_total"]) <= MAX_SERIES + 1
    assert totals.counter("messages_received_total") == 1600


@pytest.mark.parametrize("labels", [{}, {"queue": "q", "key": "k"}, {"key": "k"}])
def test_undeclared_labels_are_refused(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="messages_received_total has the labels"):
        Instruments().count("messages_received_total", 1, **labels)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_counted_as_dropped(tmp_path: Path, value: float) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    telemetry.metrics.count("energy_kwh", value, dataset="d", method="m")
    telemetry.metrics.observe("processing_latency_seconds", value, stage="mask")
    telemetry.metrics.set("queue_depth_messages", value, queue="q")
    telemetry.close()
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("telemetry_dropped_total", signal="metric") == 3
    assert totals.counter("energy_kwh") == 0
    assert totals.gauge("queue_depth_messages") is None


def test_no_metric_declares_an_unbounded_label() -> None:
    for metric in METRICS:
        assert not {"key", "object", "object_key", "message_id", "event_id", "run_id", "trace_id"} & set(metric.labels)
