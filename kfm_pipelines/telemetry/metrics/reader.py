"""Reads the metrics file. Lines of all processes add up; of a gauge the latest value counts."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from kfm_pipelines.telemetry.line_files import previous_path
from kfm_pipelines.telemetry.metrics.instruments import MAX_SERIES, METRICS_FILE, OTHER, limit_label
from kfm_pipelines.telemetry.metrics.names import BY_NAME, METRICS, Metric

Labels = tuple[str, ...]  # values, in the order in which the metric declares their names
DELTA = 1
_TIME = re.compile(rb'"timeUnixNano":"(\d{1,20})"')
_FINGERPRINT_BYTES = 4096
_MAX_TRACKED_FILES = 8


@dataclass(slots=True)
class Distribution:
    """A histogram; `counts` has one more element than `bounds`."""

    bounds: Sequence[float]
    counts: list[int]
    total: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """Interpolates within a bucket as Prometheus does; the last bound for values beyond it, None without values."""
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


def _empty_series(kind: str) -> dict[str, dict[Labels, Any]]:
    return {metric.name: {} for metric in METRICS if metric.kind == kind}


@dataclass(slots=True)
class Totals:
    """The series of the declared metrics, at most MAX_SERIES each. Undeclared metrics are ignored."""

    counters: dict[str, dict[Labels, float]] = field(default_factory=lambda: _empty_series("counter"))
    gauges: dict[str, dict[Labels, tuple[int, float]]] = field(default_factory=lambda: _empty_series("gauge"))
    histograms: dict[str, dict[Labels, Distribution]] = field(default_factory=lambda: _empty_series("histogram"))
    unreadable: int = 0  # lines and data points that could not be read

    def counter(self, name: str, **labels: str) -> float:
        return float(sum(_matching(name, self.counters[name], labels)))

    def gauge(self, name: str, **labels: str) -> float | None:
        values: list[tuple[int, float]] = list(_matching(name, self.gauges[name], labels))
        return max(values)[1] if values else None

    def histogram(self, name: str, **labels: str) -> Distribution:
        merged = _empty_distribution(BY_NAME[name])
        for one in _matching(name, self.histograms[name], labels):
            merged.add(one.counts, one.total)
        return merged

    def series(self, name: str) -> list[tuple[Labels, float | Distribution]]:
        """Returns every series of a metric, sorted by its labels."""
        if name in self.gauges:
            return sorted((labels, value) for labels, (_, value) in self.gauges[name].items())
        series = self.counters[name] if name in self.counters else self.histograms[name]
        return sorted(series.items(), key=lambda one: one[0])

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Returns a counter's sums, or a gauge's latest values, by the values of one label."""
        index = BY_NAME[name].labels.index(label)
        values: dict[str, float] = {}
        if name in self.gauges:
            for labels, (_, value) in sorted(self.gauges[name].items(), key=lambda one: one[1]):
                values[labels[index]] = value
        else:
            for labels, value in self.counters[name].items():
                values[labels[index]] = values.get(labels[index], 0.0) + value
        return dict(sorted(values.items()))

    def add_line(self, line: bytes | str) -> None:
        """Adds one line of the file. What cannot be read is skipped and counted."""
        try:
            for resource in json.loads(line)["resourceMetrics"]:
                for scope in resource["scopeMetrics"]:
                    for metric in scope["metrics"]:
                        self._add_metric(metric)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError):
            self.unreadable += 1

    def _add_metric(self, document: Mapping[str, Any]) -> None:
        metric = BY_NAME.get(document["name"])
        if metric is None:
            return
        data = document["sum" if metric.kind == "counter" else metric.kind]
        if metric.kind != "gauge" and data["aggregationTemporality"] != DELTA:
            raise ValueError("not a delta")
        by_kind: dict[str, Any] = {"counter": self.counters, "gauge": self.gauges, "histogram": self.histograms}
        series: dict[Labels, Any] = by_kind[metric.kind][metric.name]
        for point in data["dataPoints"]:
            labels = _labels(metric, point, series)
            if metric.kind == "counter":
                series[labels] = series.get(labels, 0.0) + _number(point)
            elif metric.kind == "gauge":
                value = (int(point["timeUnixNano"]), _number(point))
                series[labels] = value if value[0] >= series.get(labels, value)[0] else series[labels]
            else:
                self._add_histogram(metric, point, labels)

    def _add_histogram(self, metric: Metric, point: Mapping[str, Any], labels: Labels) -> None:
        counts = [int(count) for count in point["bucketCounts"]]
        if tuple(point["explicitBounds"]) != metric.bounds or len(counts) != len(metric.bounds) + 1:
            self.unreadable += 1  # written by a version with other buckets, which cannot be added
            return
        distribution = self.histograms[metric.name].setdefault(labels, _empty_distribution(metric))
        distribution.add(counts, float(point.get("sum", 0.0)))


def _empty_distribution(metric: Metric) -> Distribution:
    return Distribution(metric.bounds, [0] * (len(metric.bounds) + 1))


def _labels(metric: Metric, point: Mapping[str, Any], series: Mapping[Labels, Any]) -> Labels:
    values = {one["key"]: one["value"]["stringValue"] for one in point.get("attributes", ())}
    if values.keys() != set(metric.labels):
        raise ValueError("undeclared labels")
    labels = tuple(values[name] for name in metric.labels)
    if labels in series:
        return labels
    labels = tuple(limit_label(value) for value in labels)
    return labels if labels in series or len(series) < MAX_SERIES else tuple(OTHER for _ in labels)


def _number(point: Mapping[str, Any]) -> float:
    number = float(point["asInt"] if "asInt" in point else point["asDouble"])
    if number - number != 0:
        raise ValueError("not a number")
    return number


def _matching(name: str, series: Mapping[Labels, Any], labels: Mapping[str, str]) -> Iterator[Any]:
    wanted = [(BY_NAME[name].labels.index(label), value) for label, value in labels.items()]
    for values, total in series.items():
        if all(values[index] == value for index, value in wanted):
            yield total


def read_totals(folder: Path, since: datetime | None = None) -> Totals:
    """Adds up the metrics of this folder: all, or those written since then."""
    totals = Totals()
    earliest = 0 if since is None else int(since.timestamp() * 1e9)
    with _open_files(folder) as files:
        for file in files:
            for line in _whole_lines(file):
                if not earliest or ((found := _TIME.search(line)) and int(found[1]) >= earliest):
                    totals.add_line(line)
    return totals


class MetricsFollower:
    """Adds the lines written since it was last called, including the rest of a file that was rotated meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[bytes, int] = {}  # by how the file begins, which rotation does not change
        self._totals = Totals()

    def totals(self) -> Totals:
        with _open_files(self._folder) as files:
            for file in files:
                fingerprint = _fingerprint(file)
                if fingerprint is not None:
                    self._read_new_lines(file, fingerprint)
        return self._totals

    def _read_new_lines(self, file: BinaryIO, fingerprint: bytes) -> None:
        offset = self._offsets.pop(fingerprint, 0)
        if offset > os.fstat(file.fileno()).st_size:
            offset = 0
        file.seek(offset)
        for line in _whole_lines(file):
            self._totals.add_line(line)
            offset += len(line)
        self._offsets[fingerprint] = offset
        while len(self._offsets) > _MAX_TRACKED_FILES:
            del self._offsets[next(iter(self._offsets))]


@contextlib.contextmanager
def _open_files(folder: Path) -> Iterator[list[BinaryIO]]:
    """Yields the previous file and the current one, opened first: a file rotated in between is found, perhaps twice."""
    with contextlib.ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        for path in (folder / METRICS_FILE, previous_path(folder / METRICS_FILE)):
            with contextlib.suppress(OSError):
                file = stack.enter_context(path.open("rb"))
                files.setdefault(os.fstat(file.fileno()).st_ino, file)
        yield list(reversed(files.values()))


def _fingerprint(file: BinaryIO) -> bytes | None:
    """Returns the first line, or its first 4 kB; None until that much is written."""
    begins = file.read(_FINGERPRINT_BYTES)
    line, end, _ = begins.partition(b"\n")
    return line if end or len(begins) == _FINGERPRINT_BYTES else None


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    return takewhile(lambda line: line.endswith(b"\n"), file)
