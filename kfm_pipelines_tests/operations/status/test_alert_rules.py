"""Every alert fires on what it is for, and on nothing else."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kfm_pipelines_tests.fixtures.telemetry.alert_rules import (
    LONG_MINUTES,
    PROMTOOL,
    RULES,
    Fires,
    Series,
    alerts,
    assert_fires,
    assert_quiet,
    needs_promtool,
)

pytestmark = [needs_promtool, pytest.mark.slow]

FLOW = 'dataset="usgs/streamflow"'
DROUGHT = 'dataset="drought/tribal-areas"'
STREAM = 'stream="usgs/streamflow"'
END_TO_END = 'stage="end_to_end"'

# A day of a site where all is well: an hour's key every minute, a duplicate now and then, one failure in 200.
HEALTHY: Series = {
    "telemetry_timestamp_seconds": "0+60x2000",
    'messages_received_total{queue="kfm-ingest"}': "0+10x2000",
    'messages_duplicate_total{queue="kfm-ingest"}': "0+0.05x2000",
    f'keys_settled_total{{{FLOW}, outcome="APPLIED"}}': "0+1x2000",
    f'keys_settled_total{{{FLOW}, outcome="SKIPPED"}}': "0+1x2000",
    f'keys_settled_total{{{FLOW}, outcome="FAILED"}}': "0+0.01x2000",
    f"processing_latency_seconds_count{{{END_TO_END}}}": "0+100x2000",
    f'processing_latency_seconds_bucket{{{END_TO_END}, le="300.0"}}': "0+98x2000",
    f'processing_latency_seconds_bucket{{{END_TO_END}, le="+Inf"}}': "0+100x2000",
    "event_dlq_count": "3x2000",
    'dead_letter_count{queue="kfm-ingest-dlq"}': "0x2000",
    'gate_verdicts_total{gate="qa", verdict="green"}': "0+1x2000",
    'gate_verdicts_total{gate="qa", verdict="red"}': "7x2000",
    f"masking_failures_total{{{FLOW}}}": "2x2000",
    f"retry_exhausted_total{{{FLOW}}}": "1x2000",
    f"double_applies{{{FLOW}}}": "0x2000",
    f"row_delta_pct{{{FLOW}}}": "-4x2000",
    f"pipeline_success{{{FLOW}}}": "1x2000",
    f"published_timestamp_seconds{{{FLOW}}}": "0+60x2000",
    f"freshness_target_min{{{FLOW}}}": "180x2000",
    f"watermark_lag_seconds{{{STREAM}}}": "10800x2000",
    f"watermark_lag_target_seconds{{{STREAM}}}": "25200x2000",
    f"late_held_events{{{FLOW}}}": "0x2000",
    f"killed_timestamp_seconds{{{FLOW}}}": "0x2000",
    f'sink_lag_seconds{{sink="graph", {FLOW}}}': "40x2000",
    'telemetry_dropped_total{signal="record"}': "5x2000",
}


@dataclass(frozen=True)
class Case:
    """What changes on the healthy site, and the minute of evaluation. `with_it` must fire too."""

    alert: str
    severity: str
    fires: Series
    minute: int
    quiet: Series
    quiet_minute: int | None = None
    with_it: tuple[Fires, ...] = field(default=())
    times: int = 1

    @property
    def quiet_at(self) -> int:
        return self.quiet_minute or self.minute

    def __str__(self) -> str:
        return f"{self.alert}-{self.severity}-{self.minute}"


FAILED = f'keys_settled_total{{{FLOW}, outcome="FAILED"}}'
IN_TIME = f'processing_latency_seconds_bucket{{{END_TO_END}, le="300.0"}}'
DUPLICATES = 'messages_duplicate_total{queue="kfm-ingest"}'
RED = 'gate_verdicts_total{gate="care", verdict="red"}'

CASES = (
    # A fifth of the keys fails from the third hour on; a short bout of failures is over before anybody could look.
    Case(
        "KfmErrorBudgetBurn",
        "page",
        {FAILED: "0x130 0+0.5x600"},
        195,
        {FAILED: "0x130 0+0.5x10 5x900"},
        with_it=(Fires("KfmErrorBudgetBurn", "ticket"),),
    ),
    # The first failures that there ever were, all at once and more of them: the series was not there before.
    Case("KfmErrorBudgetBurn", "page", {FAILED: "_x130 40+5x900"}, 134, {FAILED: "_x130 1x900"}),
    Case("KfmErrorBudgetBurn", "ticket", {FAILED: "0+0.2x2000"}, 400, {FAILED: "0+0.1x2000"}),
    Case("KfmErrorBudgetBurn", "page", {IN_TIME: "0+98x130 12740+10x600"}, 195, {}),
    Case("KfmErrorBudgetBurn", "ticket", {IN_TIME: "0+60x2000"}, 400, {IN_TIME: "0+75x2000"}),
    Case("KfmDuplicateSpike", "ticket", {DUPLICATES: "0+0.5x2000"}, 120, {DUPLICATES: "0+0.08x2000"}, 120),
    # A queue that brings a handful has no rate.
    Case(
        "KfmDuplicateSpike",
        "ticket",
        {
            'messages_received_total{queue="kfm-ingest-high"}': "_x130 40x900",
            'messages_duplicate_total{queue="kfm-ingest-high"}': "_x130 10x900",
        },
        145,
        {
            'messages_received_total{queue="kfm-ingest-high"}': "_x130 4x900",
            'messages_duplicate_total{queue="kfm-ingest-high"}': "_x130 2x900",
        },
    ),
    Case("KfmDeadLettersGrow", "page", {"event_dlq_count": "3x130 30x900"}, 133, {"event_dlq_count": "3x130 8x900"}),
    Case("KfmDeadLettersGrow", "page", {"event_dlq_count": "_x130 30x900"}, 133, {"event_dlq_count": "_x130 8x900"}),
    Case(
        "KfmDeadLettersWait",
        "ticket",
        {'dead_letter_count{queue="kfm-ingest-dlq"}': "0x60 2x900"},
        305,
        {'dead_letter_count{queue="kfm-ingest-dlq"}': "0x60 2x200 0x900"},
    ),
    Case("KfmGateRed", "ticket", {RED: "0x130 1x900"}, 132, {RED: "0x10 1x900"}, 132),
    # Seen for the first time, and not for the first time though the series is new to a Prometheus that is.
    Case("KfmGateRed", "ticket", {RED: "_x130 1x900"}, 132, {RED: "4x900"}, 30),
    Case(
        "KfmMaskingFailed",
        "page",
        {f"masking_failures_total{{{DROUGHT}}}": "_x130 1x900"},
        132,
        {f"masking_failures_total{{{DROUGHT}}}": "_x10 1x900"},
    ),
    Case(
        "KfmRetriesExhausted",
        "ticket",
        {f"retry_exhausted_total{{{FLOW}}}": "1x130 2x900"},
        133,
        {f"retry_exhausted_total{{{FLOW}}}": "1x10 2x900"},
    ),
    Case(
        "KfmRunFailed",
        "ticket",
        {f"pipeline_success{{{FLOW}}}": "1x60 0x900"},
        80,
        {f"pipeline_success{{{FLOW}}}": "1x60 0x10 1x900"},
    ),
    Case("KfmDoubleApply", "page", {f"double_applies{{{FLOW}}}": "0x60 1x900"}, 62, {}),
    Case(
        "KfmPublishAnomaly", "ticket", {f"row_delta_pct{{{FLOW}}}": "-80x900"}, 5, {f"row_delta_pct{{{FLOW}}}": "9x9"}
    ),
    Case("KfmPublishAnomaly", "ticket", {f"row_delta_pct{{{FLOW}}}": "300x900"}, 5, {}),
    Case(
        "KfmKilledForLong",
        "ticket",
        {f"killed_timestamp_seconds{{{FLOW}}}": "0x60 3600x1900"},
        1505,
        {f"killed_timestamp_seconds{{{FLOW}}}": "0x60 3600x900 0x900"},
    ),
    Case(
        "KfmStale",
        "ticket",
        {f"published_timestamp_seconds{{{FLOW}}}": "3600x900"},
        250,
        {f"published_timestamp_seconds{{{FLOW}}}": "3600x900"},
        239,
    ),
    Case(
        "KfmStale",
        "page",
        {f"published_timestamp_seconds{{{FLOW}}}": "3600x900"},
        430,
        {f"freshness_target_min{{{FLOW}}}": "_x900", f"published_timestamp_seconds{{{FLOW}}}": "3600x900"},
        with_it=(Fires("KfmStale", "ticket"),),
    ),
    Case(
        "KfmWatermarkLags",
        "ticket",
        {f"watermark_lag_seconds{{{STREAM}}}": "20000+60x900"},
        150,
        {f"watermark_lag_seconds{{{STREAM}}}": "20000+60x900"},
        100,
    ),
    Case(
        "KfmLateEventsHeld",
        "ticket",
        {f"late_held_events{{{FLOW}}}": "0x60 1x1900"},
        1625,
        {f"late_held_events{{{FLOW}}}": "0x60 5x1200 0x900"},
    ),
    Case(
        "KfmSinkBehind",
        "ticket",
        {f'sink_lag_seconds{{sink="graph", {FLOW}}}': "0+60x900"},
        75,
        {f'sink_lag_seconds{{sink="graph", {FLOW}}}': "0+60x65 0x900"},
    ),
    Case(
        "KfmTelemetryMissing",
        "page",
        {"telemetry_timestamp_seconds": "0+60x60 3600x900"},
        77,
        {"telemetry_timestamp_seconds": "0+60x60 3600x8 4200+60x900"},
    ),
    Case("KfmTelemetryMissing", "page", {"telemetry_timestamp_seconds": "0+60x60 _x900"}, 75, {}),
    Case(
        "KfmTelemetryDropped",
        "ticket",
        {'telemetry_dropped_total{signal="span"}': "_x130 1x900"},
        132,
        {'telemetry_dropped_total{signal="span"}': "_x10 1x900"},
    ),
)


def _grouped(cases: Iterable[Case]) -> list[list[Case]]:
    """Groups cases so that no series occurs twice in a group."""
    groups: list[list[Case]] = []
    for case in cases:
        free = (group for group in groups if all(case.quiet.keys().isdisjoint(one.quiet) for one in group))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append(case)
    return groups


QUIET = [
    *_grouped(case for case in CASES if case.quiet and case.quiet_at < LONG_MINUTES),
    *_grouped(case for case in CASES if case.quiet and case.quiet_at >= LONG_MINUTES),
]


def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    for minute in (0, 90, 1700):
        assert_fires(tmp_path, HEALTHY, minute, ())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_fires_and_is_alone(tmp_path: Path, case: Case) -> None:
    expected = {Fires(case.alert, case.severity, case.times), *case.with_it}
    assert_fires(tmp_path, {**HEALTHY, **case.fires}, case.minute, expected)


@pytest.mark.parametrize("together", range(len(QUIET)))
def test_it_is_quiet_below_its_threshold(tmp_path: Path, together: int) -> None:
    """Cases about different series are evaluated at once, which takes promtool no longer than one of them."""
    series = {name: values for case in QUIET[together] for name, values in case.quiet.items()}
    assert_quiet(tmp_path, {**HEALTHY, **series}, [(one.alert, one.severity, one.quiet_at) for one in QUIET[together]])


def test_every_alert_is_tried_both_ways() -> None:
    tried = {(case.alert, case.severity) for case in CASES}
    assert tried == {(one["alert"], one["labels"]["severity"]) for one in alerts()}


def test_a_site_without_telemetry_alerts(tmp_path: Path) -> None:
    assert_fires(tmp_path, {"up": "1x100"}, 10, {Fires("KfmTelemetryMissing", "page")})


def test_two_sites_are_distinguished(tmp_path: Path) -> None:
    """One of them red for the first time, the other only seen for the first time."""
    east, west = ({_at(name, place): values for name, values in HEALTHY.items()} for place in ("east", "west"))
    west = {name: f"_x200 {values}" for name, values in west.items() if "timestamp" not in name}
    west[_at("telemetry_timestamp_seconds", "west")] = "_x200 12000+60x900"
    west[_at(RED, "west")] = "_x200 1x900"
    assert_fires(tmp_path, {**east, **west}, 210, ())
    east[_at(RED, "east")] = "_x200 1x900"
    assert_fires(tmp_path, {**east, **west}, 210, {Fires("KfmGateRed", "ticket")})


def _at(series: str, place: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{instance="{place}"{", " if labels else ""}{labels.removesuffix("}")}}}'


def test_prometheus_accepts_the_file() -> None:
    assert PROMTOOL is not None
    checked = subprocess.run([PROMTOOL, "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
