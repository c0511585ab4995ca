"""Work goes on whatever happens to the disk; what cannot be written is counted, and nothing is written twice."""

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from kfm_pipelines.telemetry.metrics.instruments import MAX_PENDING_LINES
from kfm_pipelines.telemetry.metrics.reader import read_totals
from kfm_pipelines.telemetry.process import Telemetry, open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.signals import settings_in, span_names


@contextmanager
def full_disk(after_bytes: int = 0) -> Iterator[None]:
    """No file may grow beyond this size; as on a disk that fills up, the last write is partial."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def emit(telemetry: Telemetry) -> None:
    telemetry.metrics.count("event_success_total", 2)
    with telemetry.spans.span("work"):
        pass
    telemetry.flush()


def test_a_full_disk_stops_nothing_and_loses_no_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    emit(telemetry)
    with full_disk(after_bytes=(tmp_path / "telemetry" / "metrics.jsonl").stat().st_size + 10):
        for _ in range(3):
            emit(telemetry)
    emit(telemetry)
    telemetry.close()
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") == 10
    assert totals.unreadable == 1  # the partial line
    assert totals.counter("telemetry_dropped_total", signal="span") == 3
    assert len([record for record in caplog.records if record.name.startswith("kfm_pipelines")]) == 2
    assert not [record for record in caplog.records if record.exc_info]


def test_metrics_dropped_after_many_failed_writes_are_counted(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    with full_disk():
        for _ in range(MAX_PENDING_LINES + 4):
            telemetry.metrics.count("event_success_total")
            telemetry.flush()
    telemetry.close()
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") + totals.counter("telemetry_dropped_total", signal="metric") == (
        MAX_PENDING_LINES + 4
    )


def test_a_folder_that_cannot_be_created_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "telemetry").write_text("a file where a folder should be")
    telemetry = open_telemetry(settings_in(tmp_path))
    emit(telemetry)
    telemetry.close()
    assert (tmp_path / "telemetry").read_text() == "a file where a folder should be"


def test_a_deleted_folder_is_created_again(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    emit(telemetry)
    shutil.rmtree(tmp_path / "telemetry")
    emit(telemetry)
    telemetry.close()
    assert span_names(tmp_path) == ["work"]
    assert read_totals(tmp_path / "telemetry").counter("event_success_total") == 2


def test_a_forked_child_does_not_write_what_its_parent_will(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    telemetry.metrics.count("event_success_total", 2)
    with telemetry.spans.span("of the parent"):
        pass
    child = os.fork()
    if child == 0:
        try:
            emit(telemetry)
            telemetry.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    telemetry.close()
    assert sorted(span_names(tmp_path)) == ["of the parent", "work"]
    assert read_totals(tmp_path / "telemetry").counter("event_success_total") == 4


def test_threads_lose_no_span_and_no_count(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))

    def work() -> None:
        for _ in range(500):
            with telemetry.spans.span("work"):
                telemetry.metrics.count("messages_received_total", queue="q")
        telemetry.flush()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    telemetry.close()
    assert len(span_names(tmp_path)) == 2000
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total") == 2000


def test_a_variable_that_opentelemetry_cannot_use_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "abc")
    telemetry = open_telemetry(settings_in(tmp_path))
    emit(telemetry)
    telemetry.close()
