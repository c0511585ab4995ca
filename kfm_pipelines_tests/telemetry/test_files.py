"""Whatever becomes of disk and folder, work goes on; what is not told is counted, and nothing is told twice."""

import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from kfm_pipelines.telemetry import append_only, files
from kfm_pipelines.telemetry.append_only import AppendOnlyFile, previous_path
from kfm_pipelines.telemetry.metrics.reader import read_totals
from kfm_pipelines.telemetry.process import Telemetry, open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.signals import settings_in, spans_told


@contextmanager
def full_disk(after_bytes: int = 0) -> Iterator[None]:
    """No file may grow beyond so much; as on a disk that fills up, the last write is taken in part."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def tell(telemetry: Telemetry) -> None:
    telemetry.metrics.count("event_success_total", 2)
    with telemetry.spans.span("told"):
        pass
    telemetry.flush()


def test_a_full_disk_stops_nothing_and_keeps_the_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    tell(telemetry)
    with full_disk(after_bytes=(tmp_path / "telemetry" / "metrics.jsonl").stat().st_size + 10):
        for _ in range(3):
            tell(telemetry)
    tell(telemetry)
    telemetry.close()
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") == 10
    assert totals.unreadable == 1  # the part of a line that the disk had taken
    assert totals.counter("telemetry_dropped_total", signal="span") == 3
    assert len([record for record in caplog.records if record.name.startswith("kfm_pipelines")]) == 2
    assert not [record for record in caplog.records if record.exc_info]


def test_spans_that_cannot_be_made_into_text_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> str:
        raise TypeError("as no span of ours is")

    telemetry = open_telemetry(settings_in(tmp_path))
    monkeypatch.setattr(files, "encode_line", fails)
    for _ in range(files.SPAN_BATCH_SIZE + 1):
        with telemetry.spans.span("told"):
            pass
    telemetry.close()
    dropped = read_totals(tmp_path / "telemetry").counter("telemetry_dropped_total", signal="span")
    assert dropped == files.SPAN_BATCH_SIZE + 1


def test_metrics_that_cannot_be_kept_any_longer_are_counted(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    with full_disk():
        for _ in range(files.MAX_PENDING_LINES + 4):
            telemetry.metrics.count("event_success_total")
            telemetry.flush()
    telemetry.close()
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("event_success_total") + totals.counter("telemetry_dropped_total", signal="metric") == (
        files.MAX_PENDING_LINES + 4
    )


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "telemetry").write_text("a file where a folder should be")
    telemetry = open_telemetry(settings_in(tmp_path))
    tell(telemetry)
    telemetry.close()
    assert (tmp_path / "telemetry").read_text() == "a file where a folder should be"


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    tell(telemetry)
    shutil.rmtree(tmp_path / "telemetry")
    tell(telemetry)
    telemetry.close()
    assert spans_told(tmp_path) == ["told"]
    assert read_totals(tmp_path / "telemetry").counter("event_success_total") == 2


def test_a_forked_child_does_not_write_what_its_parent_will(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    telemetry.metrics.count("event_success_total", 2)
    with telemetry.spans.span("of the parent"):
        pass
    child = os.fork()
    if child == 0:
        try:
            tell(telemetry)
            telemetry.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    telemetry.close()
    assert sorted(spans_told(tmp_path)) == ["of the parent", "told"]
    assert read_totals(tmp_path / "telemetry").counter("event_success_total") == 4


def test_threads_lose_no_span_and_no_count(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))

    def work() -> None:
        for _ in range(500):
            with telemetry.spans.span("told"):
                telemetry.metrics.count("messages_received_total", queue="q")
        telemetry.flush()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    telemetry.close()
    assert len(spans_told(tmp_path)) == 2000
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total") == 2000


def test_a_file_that_has_grown_large_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    file = AppendOnlyFile(tmp_path / "a.jsonl", max_bytes=100)
    other = AppendOnlyFile(tmp_path / "a.jsonl", max_bytes=100)
    for number in range(24):
        (file if number % 2 else other).write(json.dumps({"n": number, "text": "x" * 30}) + "\n")
    kept = [json.loads(line)["n"] for path in (previous_path(file.path), file.path) for line in path.open()]
    assert kept == list(range(24 - len(kept), 24))
    assert len(kept) >= 3
    assert append_only.MAX_BYTES == 64 * 1024 * 1024
