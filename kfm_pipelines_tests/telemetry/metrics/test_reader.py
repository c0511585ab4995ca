"""Metrics add up however many processes wrote the file, and whatever else got into it."""

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kfm_pipelines.telemetry.line_files import previous_path
from kfm_pipelines.telemetry.metrics.instruments import MAX_SERIES
from kfm_pipelines.telemetry.metrics.names import SECONDS
from kfm_pipelines.telemetry.metrics.reader import Distribution, MetricsFollower, read_totals
from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines_tests.fixtures.telemetry.signals import append, count, line, settings_in

SECOND = 10**9


def test_lines_of_several_processes_add_up(tmp_path: Path) -> None:
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


def test_without_a_file_there_are_no_values(tmp_path: Path) -> None:
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("messages_received_total") == 0
    assert totals.gauge("queue_depth_messages") is None
    assert totals.histogram("processing_latency_seconds").quantile(0.5) is None


def test_the_latest_value_of_a_gauge_counts_by_time_not_by_position(tmp_path: Path) -> None:
    def gauge(value: int, at: int) -> str:
        attributes = [{"key": "queue", "value": {"stringValue": "q"}}]
        return line("queue_depth_messages", "gauge", [{"attributes": attributes, "asInt": str(value)}], at=at)

    append(tmp_path, gauge(1, at=10), gauge(3, at=30), gauge(2, at=20))
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
def test_garbage_is_skipped_and_counted(tmp_path: Path, garbage: str) -> None:
    append(tmp_path, count(1), garbage, count(2))
    totals = read_totals(tmp_path / "telemetry")
    assert totals.counter("messages_received_total") == 3
    assert totals.unreadable == 1


def test_bytes_that_are_not_text_are_skipped(tmp_path: Path) -> None:
    file = append(tmp_path, count(1))
    with file.open("ab") as opened:
        opened.write(b"\xff\xfe\x80\n")
    append(tmp_path, count(2))
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total") == 3


def test_metrics_of_another_version_are_not_counted(tmp_path: Path) -> None:
    """An unknown name, or a histogram with other buckets."""
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


def test_a_follower_finishes_a_rotated_file(tmp_path: Path) -> None:
    """Even if a process writes to it afterwards, and if it is rotated repeatedly."""
    follower = MetricsFollower(tmp_path / "telemetry")
    expected = 0
    for round_ in range(12):
        file = append(tmp_path, count(1, at=100 + round_))
        expected += 1
        if round_ % 3:
            assert follower.totals().counter("messages_received_total") == expected
        slow = file.open("a")
        file.replace(previous_path(file))
        append(tmp_path, count(10, at=200 + round_))
        slow.write(count(100, at=300 + round_))
        slow.close()
        expected += 110
        assert follower.totals().counter("messages_received_total") == expected
    assert follower.totals().counter("messages_received_total") == expected


def test_a_follower_reads_a_new_file_from_its_start(tmp_path: Path) -> None:
    follower = MetricsFollower(tmp_path / "telemetry")
    file = append(tmp_path, count(1), count(1), count(1))
    follower.totals()
    file.unlink()
    append(tmp_path, count(5, at=2))
    assert follower.totals().counter("messages_received_total") == 8


def test_only_the_last_minutes(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    at = [int((now - timedelta(seconds=ago)).timestamp() * SECOND) for ago in range(7200, 0, -2)]
    file = append(tmp_path, *(count(1, at=time) for time in at[:1000]))
    file.replace(previous_path(file))
    append(tmp_path, *(count(1, at=time) for time in at[1000:]), "garbage\n" * 5)

    def since(minutes: int) -> float:
        totals = read_totals(tmp_path / "telemetry", now - timedelta(minutes=minutes))
        return totals.counter("messages_received_total")

    assert [since(minutes) for minutes in (1, 5, 60, 119)] == [30, 150, 1800, 3570]
    assert read_totals(tmp_path / "telemetry").counter("messages_received_total") == 3600


def test_quantiles_lie_in_the_bucket_of_the_value(tmp_path: Path) -> None:
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


def test_invented_names_do_not_create_series_without_end(tmp_path: Path) -> None:
    names = [f"made-up-{number}" for number in range(5 * MAX_SERIES)]
    append(tmp_path, *(count(1, queue=name) for name in names))
    totals = read_totals(tmp_path / "telemetry")
    assert len(totals.counters["messages_received_total"]) == MAX_SERIES + 1
    assert totals.counter("messages_received_total") == len(names)
    assert totals.counter("messages_received_total", queue="other") == 4 * MAX_SERIES
