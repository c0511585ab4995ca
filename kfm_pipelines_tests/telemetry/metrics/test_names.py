"""The page about metrics lists what is declared, and declared names are valid for OpenTelemetry and Prometheus."""

import re

from kfm_pipelines.settings import PACKAGE
from kfm_pipelines.telemetry.metrics.instruments import MAX_LABEL_LENGTH, MAX_PENDING_LINES, MAX_SERIES
from kfm_pipelines.telemetry.metrics.names import METRICS

PAGE = (PACKAGE.parent / "docs" / "metrics.md").read_text()


def test_the_page_has_every_metric_and_no_other() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.unit} "
        f"| {metric.description} |"
        for metric in METRICS
    ]


def test_the_page_names_the_limits() -> None:
    assert f"beyond {MAX_SERIES} series" in PAGE
    assert f"cut at {MAX_LABEL_LENGTH} characters" in PAGE
    assert f"up to {MAX_PENDING_LINES} lines" in PAGE


def test_names_are_unique_and_valid_for_prometheus() -> None:
    names = [metric.prometheus for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) for name in names)
    assert all(re.fullmatch(r"[a-z_]+", label) and label != "le" for metric in METRICS for label in metric.labels)


def test_histograms_have_bounds_that_grow_and_nothing_else_has_any() -> None:
    for metric in METRICS:
        assert bool(metric.bounds) == (metric.kind == "histogram")
        assert list(metric.bounds) == sorted(set(metric.bounds))
