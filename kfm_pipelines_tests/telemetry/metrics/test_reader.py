"""The metrics file says the same however many processes wrote it, and whatever else got into it."""

import json
import math
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kfm_pipelines.telemetry.append_only import previous_path
from kfm_pipelines.telemetry.metrics.instruments import MAX_SERIES
from kfm_pipelines.telemetry.metrics.names import SECONDS
from kfm_pipelines.telemetry.metrics.reader import MetricsFollower, read_totals
from kfm_pipelines.telemetry.metrics.totals import Distribution
from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.signals import append, count, line, settings_in

SECOND = 10**9


def test_lines_of_several_processes_add_up(tmp_path: Path) -> None:
    """Each opens, tells and ends; the last to tell a gauge is right."""
    for depth in (7, 9, 4):
        telemetry = open_telemetry(settings_in(tmp_path))
        telemetry.metrics.count("messages_received_total", 2, queue="a")
        telemetry.metrics.count("messages_received_total", 1, queue="b")
        telemetry.metrics.count("energy_kwh", 0.25, dataset="usgs/streamflow", method="estimated")
        telemetry.metrics.observe("processing_latency_seconds", 0.3, stage="mask")
        telemetry.metrics.set("queue_depth_messages", depth, queue="a")
        telemetry.close()
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("messages_received_total") == 9
    assert totals.counter("messages_received_total", queue="a") == 6
    assert totals.by_label("messages_received_total", "queue") == {"a": 6, "b": 3}
    assert totals.counter("energy_kwh", dataset="usgs/streamflow") == pytest.approx(0.75)
    assert totals.gauge("queue_depth_messages", queue="a") == 4
    assert totals.by_label("queue_depth_messages", "queue") == {"a": 4}
    mask = totals.histogram("processing_latency_seconds", stage="mask")
    assert mask.count == 3
    assert mask.total == pytest.approx(0.9)
    assert totals.unreadable == 0


def test_nothing_told_is_nothing(tmp_path: Path) -> None:
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("messages_received_total") == 0
    assert totals.gauge("queue_depth_messages") is None
    assert totals.histogram("processing_latency_seconds").quantile(0.5) is None


def test_of_gauges_the_latest_by_time_counts_not_by_place(tmp_path: Path) -> None:
    def told(value: int, at: int) -> str:
        attributes = [{"key": "queue", "value": {"stringValue": "q"}}]
        return line("queue_depth_messages", "gauge", [{"attributes": attributes, "asInt": str(value)}], at=at)

    append(tmp_path, told(1, at=10), told(3, at=30), told(2, at=20))
    assert read_totals(tmp_path / "telemetry").gauge("queue_depth_messages") == 3


@pytest.mark.parametrize(
    "garbage",
    [
        "\n",
        "not json\n",
        '{"resourceMetrics":[{"scopeMetrics":[{"metr\n',
        "[]\n",
        "null\n",
        '{"resourceMetrics":7}\n',
        "[" * 100_000 + "\n",
        "9" * 5000 + "\n",
        "\x00\x00\n",
        count(1).replace('"1"', '"one"'),
        count(1).replace('"asInt":"1"', '"asDouble":NaN'),
        count(1).replace('"aggregationTemporality":1', '"aggregationTemporality":2'),
        count(1, made_up="x"),
        line("processing_latency_seconds", "sum", [{"asInt": "1"}]),
    ],
)
def test_garbage_is_passed_over_and_counted(tmp_path: Path, garbage: str) -> None:
    append(tmp_path, count(1), garbage, count(2))
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("messages_received_total") == 3
    assert totals.unreadable == 1


def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    file = append(tmp_path, count(1))
    with file.open("ab") as opened:
        opened.write(b"\xff\xfe\x80\n")
    append(tmp_path, count(2))
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total") == 3


def test_metrics_of_another_version_are_not_counted(tmp_path: Path) -> None:
    """A name that is gone, or a histogram with other buckets."""
    other = {"bucketCounts": ["1", "0"], "explicitBounds": [1.0], "count": "1", "sum": 0.5}
    append(tmp_path, count(1, "a_name_of_old"), line("event_ingest_latency_ms", "histogram", [other]), count(2))
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("messages_received_total") == 2
    assert totals.histogram("event_ingest_latency_ms").count == 0


def test_a_follower_reads_each_line_once(tmp_path: Path) -> None:
    follower = MetricsFollower(tmp_path / "telemetry")
    assert follower.totals().counter("messages_received_total") == 0
    append(tmp_path, count(1))
    assert follower.totals().counter("messages_received_total") == 1
    append(tmp_path, count(2))
    assert follower.totals().counter("messages_received_total") == 3
    assert follower.totals().counter("messages_received_total") == 3


def test_a_follower_waits_for_the_rest_of_a_line(tmp_path: Path) -> None:
    follower = MetricsFollower(tmp_path / "telemetry")
    whole = count(2)
    append(tmp_path, count(1), whole[:40])
    assert follower.totals().counter("messages_received_total") == 1
    append(tmp_path, whole[40:])
    assert follower.totals().counter("messages_received_total") == 3
    assert follower.totals().unreadable == 0


def test_a_follower_finishes_a_file_that_was_moved_aside(tmp_path: Path) -> None:
    """Also when a process that still has it open writes to it after that, and when it happens again and again."""
    follower = MetricsFollower(tmp_path / "telemetry")
    told = 0
    for round_ in range(12):
        file = append(tmp_path, count(1, at=100 + round_))
        told += 1
        if round_ % 3:
            assert follower.totals().counter("messages_received_total") == told
        slow = file.open("a")
        file.replace(previous_path(file))
        append(tmp_path, count(10, at=200 + round_))
        slow.write(count(100, at=300 + round_))
        slow.close()
        told += 110
        assert follower.totals().counter("messages_received_total") == told
    assert follower.totals().counter("messages_received_total") == told


def test_a_follower_begins_a_new_file_at_its_beginning(tmp_path: Path) -> None:
    follower = MetricsFollower(tmp_path / "telemetry")
    file = append(tmp_path, count(1), count(1), count(1))
    follower.totals()
    file.unlink()
    append(tmp_path, count(5, at=2))
    assert follower.totals().counter("messages_received_total") == 8


def test_only_the_last_minutes(tmp_path: Path) -> None:
    """In a file large enough to be halved, and in the one before."""
    now = datetime.now(UTC)
    at = [int((now - timedelta(seconds=ago)).timestamp() * SECOND) for ago in range(7200, 0, -2)]
    file = append(tmp_path, *(count(1, at=time) for time in at[:1000]))
    file.replace(previous_path(file))
    append(tmp_path, *(count(1, at=time) for time in at[1000:]), "garbage\n" * 5)
    assert file.stat().st_size > 500_000

    def since(minutes: int) -> float:
        totals = read_totals(tmp_path / "telemetry", now - timedelta(minutes=minutes))
        return totals.counter("messages_received_total")

    assert [since(minutes) for minutes in (1, 5, 60, 119)] == [30, 150, 1800, 3570]
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total") == 3600


def test_quantiles_are_those_of_the_values(tmp_path: Path) -> None:
    """Within the bucket that the value lies in."""
    telemetry = open_telemetry(settings_in(tmp_path))
    values = [random.Random(7).lognormvariate(1, 1) for _ in range(2000)]
    for value in values:
        telemetry.metrics.observe("processing_latency_seconds", value, stage="mask")
    telemetry.close()
    spread = read_totals(tmp_path / "telemetry").histogram("processing_latency_seconds")
    for share in (0.5, 0.95, 0.99):
        exact = sorted(values)[math.ceil(share * len(values)) - 1]
        bound = next(place for place, bound in enumerate(SECONDS) if exact <= bound)
        found = spread.quantile(share)
        assert found is not None
        assert SECONDS[bound - 1] <= found <= SECONDS[bound]


def test_a_quantile_beyond_the_last_bound_is_the_last_bound() -> None:
    assert Distribution((1.0, 2.0), [0, 0, 5]).quantile(0.5) == 2.0
    assert Distribution((1.0, 2.0), [4, 0, 0]).quantile(0.5) == 0.5


def test_processes_that_each_make_up_names_do_not_make_series_without_end(tmp_path: Path) -> None:
    names = [f"made-up-{number}" for number in range(5 * MAX_SERIES)]
    append(tmp_path, *(count(1, queue=name) for name in names))
    totals = read_totals(tmp_path / "telemetry")
    assert len(totals.counters["messages_received_total"]) == MAX_SERIES + 1
    assert totals.counter("messages_received_total") == len(names)
    assert totals.counter("messages_received_total", queue="other") == 4 * MAX_SERIES


def test_large_files_are_read_quickly(tmp_path: Path) -> None:
    """A tenth of the largest one; generous, because machines differ."""
    telemetry = open_telemetry(settings_in(tmp_path))
    for stage in ("compute", "mask", "validate", "stage", "publish"):
        telemetry.metrics.observe("processing_latency_seconds", 0.3, stage=stage)
        telemetry.metrics.count("keys_settled_total", dataset=stage, outcome="published")
    telemetry.close()
    file = tmp_path / "telemetry" / "metrics.jsonl"
    [one] = file.read_text().splitlines(keepends=True)
    json.loads(one)
    file.write_text(one * (6_400_000 // len(one)))
    began = time.monotonic()
    totals = read_totals(tmp_path / "telemetry")
    assert time.monotonic() - began < 3
    assert totals.counter("keys_settled_total") == 5 * (6_400_000 // len(one))
