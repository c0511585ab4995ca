"""A collector receives metrics and spans; one that is away slows nothing, loses no work, and is logged once."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread, current_thread, main_thread

import pytest

from kfm_pipelines.telemetry import collector as collector_module
from kfm_pipelines.telemetry.collector import MAX_QUEUED_SPANS
from kfm_pipelines.telemetry.metrics.reader import read_totals
from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.collectors import BAD, black_hole, receiver
from kfm_pipelines_tests.fixtures.telemetry.signals import settings_in, span_names

EMIT = """
from kfm_pipelines.settings import load_settings
from kfm_pipelines.telemetry.process import open_telemetry
telemetry = open_telemetry(load_settings())
telemetry.metrics.count("messages_received_total", 3, queue="q")
with telemetry.spans.span("work"):
    pass
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "KFM_POSTGRES_URL": "postgresql://nobody/none", "KFM_HOME": str(home), **more}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_process_sends_everything_before_it_ends(tmp_path: Path, compression: str) -> None:
    """Even if nothing is closed, as in a Dagster run."""
    with receiver() as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address,
            "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20token",
        }
        subprocess.run([sys.executable, "-c", EMIT], env=environment(tmp_path, **variables), check=True, timeout=60)
    assert [span.name for span in collector.spans] == ["work"]
    [point] = collector.last("messages_received_total").sum.data_points
    assert point.as_int == 3
    assert {one.key: one.value.string_value for one in point.attributes} == {"queue": "q"}
    assert {headers.get("content-encoding", "none") for headers in collector.headers} == {compression}
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer token"}
    # The files have it as well.
    assert span_names(tmp_path) == ["work"]
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total", queue="q") == 3


def test_without_an_address_no_exporter_is_imported(tmp_path: Path) -> None:
    source = EMIT + "\nimport sys\nassert not [m for m in sys.modules if 'otlp.proto' in m or m == 'requests']"
    variables = {name: value for name, value in environment(tmp_path).items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", source], env=variables, check=True, timeout=60)


def test_each_signal_may_have_an_address_of_its_own(tmp_path: Path) -> None:
    with receiver() as collector:
        address = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.address}/v1/traces"}
        telemetry = open_telemetry(settings_in(tmp_path, **address))
        with telemetry.spans.span("work"):
            telemetry.metrics.count("event_dedup_hits")
        telemetry.close()
    assert len(collector.spans) == 1
    assert not collector.metrics


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "CLOSE_TIMEOUT_SECONDS", 0.3)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("trouble", BAD)
def test_a_collector_in_trouble_slows_nothing_and_is_logged_once(
    tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An exporter waits ten seconds for an answer, so anything that waited for it would take longer than this."""
    began = time.monotonic()
    with BAD[trouble]() as address:
        telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address))
        for _ in range(20):  # stages
            for _ in range(10):
                with telemetry.spans.span("work"):
                    telemetry.metrics.count("event_success_total")
            telemetry.flush()
        with caplog.at_level(logging.DEBUG):
            telemetry.close()
        assert time.monotonic() - began < 8
    assert span_names(tmp_path) == ["work"] * 200
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") == 200
    assert totals.counter("telemetry_dropped_total", signal="span") > 0
    ours = [record for record in caplog.records if record.name.startswith(("kfm_pipelines", "opentelemetry"))]
    assert [record.levelno for record in ours] == [logging.WARNING]
    assert "does not accept telemetry" in ours[0].getMessage()


@pytest.mark.usefixtures("impatient")
def test_a_process_waits_only_once_for_an_unresponsive_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command and the runs that it executes in its process have separate telemetry."""
    waits: list[float] = []
    join = Thread.join

    def recording_join(thread: Thread, timeout: float | None = None) -> None:
        if current_thread() is main_thread():
            waits.append(timeout or 0)
        join(thread, timeout)

    monkeypatch.setattr(Thread, "join", recording_join)
    with black_hole() as address:
        several = [open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address)) for _ in range(3)]
        for telemetry in several:
            with telemetry.spans.span("work"):
                telemetry.metrics.count("event_success_total")
        several[0].close()
        waits.clear()
        for telemetry in several[1:]:
            telemetry.close()
        assert max(waits) <= 0
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") == 3
    assert totals.counter("telemetry_dropped_total", signal="span") >= 3


@pytest.mark.usefixtures("impatient")
def test_a_password_in_the_address_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    address = "http://user:secret@127.0.0.1:9/"
    telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address))
    telemetry.metrics.count("event_dedup_hits")
    with caplog.at_level(logging.DEBUG):
        telemetry.close()
    assert "127.0.0.1:9 does not accept" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.usefixtures("impatient")
def test_spans_beyond_the_queue_are_in_the_file(tmp_path: Path) -> None:
    number = MAX_QUEUED_SPANS + 1500
    with black_hole() as address:
        telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address))
        for _ in range(number):
            with telemetry.spans.span("work"):
                pass
        telemetry.close()
    assert len(span_names(tmp_path)) == number
    assert read_totals(tmp_path / "telemetry").counter("telemetry_dropped_total", signal="span") > 0


def test_an_invalid_variable_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "never")
    telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"))
    telemetry.metrics.count("event_dedup_hits")
    telemetry.close()
    assert read_totals(tmp_path / "telemetry").counter("event_dedup_hits") == 1


def test_a_forked_child_sends_and_writes_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "300")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    with receiver() as collector:
        telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.address))
        telemetry.metrics.count("event_dedup_hits", 5)
        with telemetry.spans.span("of the parent"):
            pass
        child = os.fork()
        if child == 0:
            try:
                telemetry.metrics.count("event_dedup_hits", 2)
                with telemetry.spans.span("of the child"):
                    pass
                time.sleep(0.7)  # two intervals
                telemetry.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        telemetry.close()
    assert sorted(span_names(tmp_path)) == ["of the child", "of the parent"]
    assert sorted(span.name for span in collector.spans) == ["of the child", "of the parent"]
    assert read_totals(tmp_path / "telemetry").counter("event_dedup_hits") == 7
    sent = [one for one in collector.metrics if one.name == "event_dedup_hits"]
    assert sum(point.as_int for one in sent for point in one.sum.data_points) == 7
