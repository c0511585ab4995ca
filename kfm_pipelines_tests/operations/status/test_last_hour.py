"""The last hour in `kfm status`, from the metrics of all processes of the home."""

from datetime import UTC, datetime, timedelta

import pytest

from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.telemetry.signals import append, count, settings_in


def test_without_metrics_there_is_no_data_yet(untouched: Site) -> None:
    environment = {**untouched.environment, "KFM_HOME": str(untouched.root / "another")}
    assert kfm(environment, "status").out.endswith("the last hour\n  no data yet\n")
    telemetry = kfm(environment, "status", "--json").json["telemetry"]
    assert telemetry["messages"]["received"] == 0
    assert telemetry["messages"]["duplicate_share"] is None
    assert telemetry["latency_seconds"] == {}


def test_the_work_of_a_worker_is_counted(site: Site) -> None:
    put = site.put()
    site.drain()
    site.send(site.s3_message(put))
    site.work()
    site.services.telemetry.flush()
    telemetry = kfm(site.environment, "status", "--json").json["telemetry"]
    assert telemetry["messages"]["received"] == 2
    assert telemetry["messages"]["duplicates"] == 1
    assert telemetry["messages"]["duplicate_share"] == 0.5
    assert telemetry["messages"]["recorded"] == 1
    assert telemetry["messages"]["per_minute"] == pytest.approx(2 / 60)
    assert telemetry["keys"]["published"] == 1
    assert {"end_to_end", "queue", "ingest", "mask", "publish"} <= telemetry["latency_seconds"].keys()
    assert 0 < telemetry["latency_seconds"]["end_to_end"]["p50"] <= telemetry["latency_seconds"]["end_to_end"]["p99"]
    assert telemetry["energy"]["watt_seconds"]["estimated"] > 0
    out = kfm(site.environment, "status").out
    assert "2, 0.0 a minute; 1 duplicates (50.0%); 1 events recorded" in out
    assert "1 published, 0.0 a minute; 0 unchanged, 0 failed, 0 retried" in out


def test_gauges_have_their_latest_values(untouched: Site) -> None:
    home = untouched.root / "with gauges"
    metrics = (process := open_telemetry(settings_in(home))).metrics
    metrics.set("queue_depth_messages", 3, queue="kfm-ingest")
    metrics.set("dead_letter_count", 2, queue="kfm-ingest")
    metrics.set("watermark_lag_seconds", 9000, stream="usgs/streamflow")
    metrics.set("freshness_min", 12, dataset="usgs/streamflow")
    metrics.set("freshness_target_min", 180, dataset="usgs/streamflow")
    for window, rate in (("1h", 0.5), ("30m", 14.44), ("5m", 2)):
        metrics.set("error_budget_burn_rate", rate, slo="latency", window=window)
    metrics.count("telemetry_dropped_total", 4, signal="span")
    process.close()
    environment = {**untouched.environment, "KFM_HOME": str(home)}
    lines = kfm(environment, "status").out.splitlines()
    for line in (
        "  depth      kfm-ingest  3",
        "  DLQ        0 new, 2 waiting",
        "  lag        usgs/streamflow  2 h",
        "  fresh      usgs/streamflow  12 min, at most 3 h",
        "  burn rate  latency  5m 2.0, 30m 14.4, 1h 0.5",
        "  energy     no data yet",
        "  dropped    4 spans",
    ):
        assert line in lines
    telemetry = kfm(environment, "status", "--json").json["telemetry"]
    assert telemetry["burn_rate"] == {"latency": {"5m": 2, "30m": 14.44, "1h": 0.5}}
    assert telemetry["dead_letters"] == {"new": 0, "waiting": {"kfm-ingest": 2}}


def test_older_metrics_are_not_counted(untouched: Site) -> None:
    home = untouched.root / "older"
    for minutes, amount in ((70, 100), (50, 7)):
        at = datetime.now(UTC) - timedelta(minutes=minutes)
        append(home, count(amount, at=int(at.timestamp() * 1e9)))
    telemetry = kfm({**untouched.environment, "KFM_HOME": str(home)}, "status", "--json").json["telemetry"]
    assert telemetry["messages"]["received"] == 7
