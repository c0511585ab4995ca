"""What metrics come to when the lines of all processes are added up: counters and histograms add, of gauges the latest
counts. Belongs here: adding up. Does not: where the lines are, and in which form they are shown.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfm_pipelines.telemetry.metrics.instruments import MAX_SERIES, OTHER, limit_label
from kfm_pipelines.telemetry.metrics.names import BY_NAME, METRICS, Metric

Labels = tuple[str, ...]  # values, in the order the metric declares their names
DELTA = 1


@dataclass(slots=True)
class Distribution:
    """How values are spread over buckets; `counts` has one more than there are bounds."""

    bounds: Sequence[float]
    counts: list[int]
    total: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The value that this share stays below, evenly spread within a bucket, as Prometheus reckons; the last bound
        when it is beyond. None when there are no values."""
        rank = share * self.count
        below, lower = 0, 0.0
        for bound, count in zip(self.bounds, self.counts[:-1], strict=True):
            if count and below + count >= rank:
                return lower + (bound - lower) * (rank - below) / count
            below, lower = below + count, bound
        return lower if self.count else None

    def add(self, counts: Sequence[int], total: float) -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, counts, strict=True)]
        self.total += total


@dataclass(slots=True)
class Totals:
    """Series of the declared metrics. What is not declared is not counted, and a metric has only so many series."""

    counters: dict[str, dict[Labels, float]] = field(default_factory=lambda: _empty_series("counter"))
    gauges: dict[str, dict[Labels, tuple[int, float]]] = field(default_factory=lambda: _empty_series("gauge"))
    histograms: dict[str, dict[Labels, Distribution]] = field(default_factory=lambda: _empty_series("histogram"))
    unreadable: int = 0  # lines, or what is in them, that nobody can make sense of

    def counter(self, name: str, **labels: str) -> float:
        """The sum over all series that have these labels; 0 when there are none."""
        return float(sum(value for _, value in _matching(name, self.counters[name], labels)))

    def gauge(self, name: str, **labels: str) -> float | None:
        """What was told last by a series that has these labels."""
        told: list[tuple[int, float]] = [value for _, value in _matching(name, self.gauges[name], labels)]
        return max(told)[1] if told else None

    def histogram(self, name: str, **labels: str) -> Distribution:
        """All series that have these labels, put together."""
        whole = _empty_distribution(BY_NAME[name])
        for _, one in _matching(name, self.histograms[name], labels):
            whole.add(one.counts, one.total)
        return whole

    def series(self, name: str) -> list[tuple[Labels, float | Distribution]]:
        """Every series of a metric, with the values of its labels in the order that they are declared."""
        if name in self.gauges:
            return sorted((labels, value) for labels, (_, value) in self.gauges[name].items())
        series = self.counters[name] if name in self.counters else self.histograms[name]
        return sorted(series.items(), key=lambda one: one[0])

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """A counter's sums, or a gauge's last values, by the values of one label."""
        place = BY_NAME[name].labels.index(label)
        told: dict[str, float] = {}
        if BY_NAME[name].kind == "gauge":
            for labels, (_, value) in sorted(self.gauges[name].items(), key=lambda one: one[1]):
                told[labels[place]] = value
        else:
            for labels, value in self.counters[name].items():
                told[labels[place]] = told.get(labels[place], 0.0) + value
        return dict(sorted(told.items()))

    def add_line(self, line: bytes | str) -> None:
        """A line that one process has written. What cannot be read in it is passed over, and counted."""
        try:
            for metric in _metrics(json.loads(line)):
                self._add_metric(metric)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError):
            self.unreadable += 1

    def _add_metric(self, document: Mapping[str, Any]) -> None:
        metric = BY_NAME.get(document["name"])
        if metric is None:
            return
        if metric.kind == "counter":
            self._add_counts(metric, document["sum"])
        elif metric.kind == "gauge":
            self._add_gauges(metric, document["gauge"])
        else:
            self._add_histograms(metric, document["histogram"])

    def _add_counts(self, metric: Metric, document: Mapping[str, Any]) -> None:
        _require_delta(document)
        series = self.counters[metric.name]
        for point in document["dataPoints"]:
            labels = _labels(metric, point, series)
            series[labels] = series.get(labels, 0.0) + _number(point)

    def _add_gauges(self, metric: Metric, document: Mapping[str, Any]) -> None:
        series = self.gauges[metric.name]
        for point in document["dataPoints"]:
            labels, told = _labels(metric, point, series), (int(point["timeUnixNano"]), _number(point))
            if labels not in series or told[0] >= series[labels][0]:
                series[labels] = told

    def _add_histograms(self, metric: Metric, document: Mapping[str, Any]) -> None:
        _require_delta(document)
        series = self.histograms[metric.name]
        for point in document["dataPoints"]:
            counts = [int(count) for count in point["bucketCounts"]]
            if tuple(point["explicitBounds"]) != metric.bounds or len(counts) != len(metric.bounds) + 1:
                self.unreadable += 1  # a version with other buckets has written it; they cannot be added up
                continue
            labels = _labels(metric, point, series)
            if labels not in series:
                series[labels] = _empty_distribution(metric)
            series[labels].add(counts, float(point.get("sum", 0.0)))


def _empty_series(kind: str) -> dict[str, dict[Labels, Any]]:
    return {metric.name: {} for metric in METRICS if metric.kind == kind}


def _empty_distribution(metric: Metric) -> Distribution:
    return Distribution(metric.bounds, [0] * (len(metric.bounds) + 1))


def _metrics(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in document["resourceMetrics"]:
        for scope in resource["scopeMetrics"]:
            yield from scope["metrics"]


def _labels(metric: Metric, point: Mapping[str, Any], series: Mapping[Labels, Any]) -> Labels:
    said = {one["key"]: one["value"]["stringValue"] for one in point.get("attributes", ())}
    if said.keys() != set(metric.labels):
        raise ValueError("labels that are not declared")
    labels = tuple(said[name] for name in metric.labels)
    if labels in series:
        return labels
    labels = tuple(limit_label(value) for value in labels)
    return labels if labels in series or len(series) < MAX_SERIES else tuple(OTHER for _ in labels)


def _number(point: Mapping[str, Any]) -> float:
    number = float(point["asInt"] if "asInt" in point else point["asDouble"])
    if number - number != 0:
        raise ValueError("not a number")
    return number


def _require_delta(document: Mapping[str, Any]) -> None:
    if document["aggregationTemporality"] != DELTA:
        raise ValueError("not what happened since the line before")


def _matching(name: str, series: Mapping[Labels, Any], labels: Mapping[str, str]) -> Iterator[tuple[Labels, Any]]:
    wanted = [(BY_NAME[name].labels.index(label), value) for label, value in labels.items()]
    for said, value in series.items():
        if all(said[place] == value for place, value in wanted):
            yield said, value
