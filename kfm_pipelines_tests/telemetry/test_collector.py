"""What is told reaches a collector; one that is away slows nothing, loses no work, and is complained of once."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kfm_pipelines.telemetry.collector import CLOSE_TIMEOUT_SECONDS, MAX_QUEUED_SPANS
from kfm_pipelines.telemetry.metrics.reader import read_totals
from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.collectors import BAD, black_hole, receiver
from kfm_pipelines_tests.fixtures.telemetry.signals import settings_in, spans_told

TELL = """
from kfm_pipelines.settings import load_settings
from kfm_pipelines.telemetry.process import open_telemetry
telemetry = open_telemetry(load_settings())
telemetry.metrics.count("messages_received_total", 3, queue="q")
with telemetry.spans.span("told"):
    pass
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "KFM_POSTGRES_URL": "postgresql://nobody/none", "KFM_HOME": str(home), **more}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_process_sends_what_it_has_before_it_ends(tmp_path: Path, compression: str) -> None:
    """It closes nothing, as a run of Dagster does not."""
    with receiver() as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address,
            "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20token",
        }
        subprocess.run([sys.executable, "-c", TELL], env=environment(tmp_path, **variables), check=True, timeout=60)
    assert [span.name for span in collector.spans] == ["told"]
    [point] = collector.last("messages_received_total").sum.data_points
    assert point.as_int == 3
    assert {one.key: one.value.string_value for one in point.attributes} == {"queue": "q"}
    assert {headers.get("content-encoding", "none") for headers in collector.headers} == {compression}
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer token"}
    # The files have it as well.
    assert spans_told(tmp_path) == ["told"]
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total", queue="q") == 3


def test_without_an_address_nothing_that_sends_is_imported(tmp_path: Path) -> None:
    source = TELL + "\nimport sys\nassert not [m for m in sys.modules if 'otlp.proto' in m or m == 'requests']"
    variables = {name: value for name, value in environment(tmp_path).items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", source], env=variables, check=True, timeout=60)


def test_each_signal_may_have_an_address_of_its_own(tmp_path: Path) -> None:
    with receiver() as collector:
        address = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.address}/v1/traces"}
        telemetry = open_telemetry(settings_in(tmp_path, **address))
        with telemetry.spans.span("told"):
            telemetry.metrics.count("event_dedup_hits")
        telemetry.close()
    assert len(collector.spans) == 1
    assert not collector.metrics


@pytest.mark.parametrize("trouble", BAD)
def test_a_collector_in_trouble_is_waited_for_at_the_end_alone(
    tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    with BAD[trouble]() as address:
        telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address))
        began = time.monotonic()
        for _ in range(20):  # stages
            for _ in range(10):
                with telemetry.spans.span("told"):
                    telemetry.metrics.count("event_success_total")
            telemetry.flush()
        flushed = time.monotonic()
        with caplog.at_level(logging.DEBUG):
            telemetry.close()
        closed = time.monotonic()
    assert flushed - began < 1.0
    assert closed - flushed < CLOSE_TIMEOUT_SECONDS + 1.0
    assert spans_told(tmp_path) == ["told"] * 200
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") == 200
    assert totals.counter("telemetry_dropped_total", signal="span") == 200
    assert totals.counter("telemetry_dropped_total", signal="metric") > 0
    ours = [record for record in caplog.records if record.name.startswith(("kfm_pipelines", "opentelemetry"))]
    assert [record.levelno for record in ours] == [logging.WARNING]
    assert "does not take telemetry" in ours[0].getMessage()


def test_a_process_waits_for_a_collector_in_vain_only_once(tmp_path: Path) -> None:
    """A command and the runs that it carries out in its process have telemetry of their own."""
    with black_hole() as address:
        several = [open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address)) for _ in range(3)]
        for telemetry in several:
            with telemetry.spans.span("told"):
                telemetry.metrics.count("event_success_total")
        began = time.monotonic()
        for telemetry in several:
            telemetry.close()
        assert time.monotonic() - began < CLOSE_TIMEOUT_SECONDS + 1.0
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") == 3
    assert totals.counter("telemetry_dropped_total", signal="span") == 3


def test_a_password_in_the_address_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    address = "http://user:secret@127.0.0.1:9/"
    telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address))
    telemetry.metrics.count("event_dedup_hits")
    with caplog.at_level(logging.DEBUG):
        telemetry.close()
    assert "127.0.0.1:9 does not take" in caplog.text
    assert "secret" not in caplog.text


def test_more_spans_than_can_wait_are_dropped_and_counted(tmp_path: Path) -> None:
    """All of them are in the file, and every one that did not get out is counted once."""
    told = MAX_QUEUED_SPANS + 1500
    with black_hole() as address:
        telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address))
        for _ in range(told):
            with telemetry.spans.span("told"):
                pass
        telemetry.close()
    assert len(spans_told(tmp_path)) == told
    assert read_totals(tmp_path / "telemetry").counter("telemetry_dropped_total", signal="span") == told


def test_a_variable_that_makes_no_sense_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "never")
    telemetry = open_telemetry(settings_in(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"))
    telemetry.metrics.count("event_dedup_hits")
    telemetry.close()
    assert read_totals(tmp_path / "telemetry").counter("event_dedup_hits") == 1


def test_a_forked_child_sends_and_writes_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while both live and send now and then."""
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
                time.sleep(1)
                telemetry.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        telemetry.close()
    assert sorted(spans_told(tmp_path)) == ["of the child", "of the parent"]
    assert sorted(span.name for span in collector.spans) == ["of the child", "of the parent"]
    assert read_totals(tmp_path / "telemetry").counter("event_dedup_hits") == 7
    sent = [one for one in collector.metrics if one.name == "event_dedup_hits"]
    assert sum(point.as_int for one in sent for point in one.sum.data_points) == 7
