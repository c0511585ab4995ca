"""The declared metrics as OpenTelemetry instruments of this process, and the file they are written to."""

import logging
import math
import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, cast

from kfm_pipelines.telemetry.line_files import AppendOnlyFile, CountDropped, OneTimeWarning
from kfm_pipelines.telemetry.metrics.names import METRICS, Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

METRICS_FILE = "metrics.jsonl"
MAX_PENDING_LINES = 50
# Further label values are counted together: producers must not be able to create series without end.
MAX_SERIES = 200
OTHER = "other"
MAX_LABEL_LENGTH = 100
# Digests, ids, addresses, keys and ARNs: names of one thing among very many.
_IDENTITY = re.compile(r"[0-9a-f]{16}|[0-9a-f]{8}-[0-9a-f]{4}-|://|:[^:]*:[^:]*:", re.IGNORECASE)

log = logging.getLogger(__name__)


class MetricSeries:
    """The series of one metric, at most MAX_SERIES. Looking up a known one takes no lock."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._names = frozenset(metric.labels)
        self._known: dict[tuple[str, ...], dict[str, str]] = {}
        self._other = dict.fromkeys(metric.labels, OTHER)
        self._lock = Lock()

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Returns the labels to count under; always the same object for a known series."""
        if labels.keys() != self._names:
            raise ValueError(f"{self._metric.name} has the labels {self._metric.labels}, not {tuple(labels)}")
        values = tuple(labels[name][:MAX_LABEL_LENGTH] for name in self._metric.labels)
        known = self._known.get(values)
        if known is not None:
            return known
        values = tuple(limit_label(value) for value in values)
        with self._lock:
            if values not in self._known and len(self._known) >= MAX_SERIES:
                return self._other
            return self._known.setdefault(values, dict(zip(self._metric.labels, values, strict=True)))


def limit_label(value: str) -> str:
    """Truncates a label value; returns `other` for an identifier or unprintable text."""
    value = value[:MAX_LABEL_LENGTH]
    return value if value.isprintable() and not _IDENTITY.search(value) else OTHER


class Instruments:
    """Counts, observes and sets metrics by name. Thread-safe."""

    def __init__(self) -> None:
        self._series = {metric.name: MetricSeries(metric) for metric in METRICS}
        self._instruments: dict[str, Any] = {}

    def use_meter(self, meter: "Meter") -> None:
        self._instruments = {metric.name: _create_instrument(meter, metric) for metric in METRICS}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Adds to a counter. Adding 0 creates the series."""
        self._emit("add", name, amount, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._emit("record", name, value, labels)

    def set(self, name: str, value: float, **labels: str) -> None:
        self._emit("set", name, value, labels)

    def _emit(self, method: str, name: str, value: float, labels: Mapping[str, str]) -> None:
        series = self._series[name].labels(labels)
        if not self._instruments:
            return
        if math.isfinite(value):
            getattr(self._instruments[name], method)(value, series)
        else:  # it would make the sum unknown for ever
            self.count("telemetry_dropped_total", signal="metric")


def _create_instrument(meter: "Meter", metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.description)
    if metric.kind == "gauge":
        return meter.create_gauge(metric.name, metric.unit, metric.description)
    bounds = [float(bound) for bound in metric.bounds]
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=bounds
    )


class MetricsFile:
    """Writes what was counted since the last flush as one OTLP JSON line: deltas, so that lines of processes add up."""

    def __init__(self, folder: Path, count_dropped: CountDropped) -> None:
        from opentelemetry.exporter.otlp.json.file import FileMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        self._writer = RetryingLineWriter(AppendOnlyFile(folder / METRICS_FILE), count_dropped)
        exporter = FileMetricExporter(stream=cast(IO[str], self._writer), preferred_temporality=_delta_temporality())
        # Flushed when a stage or tick ends, not by a clock.
        self.reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)

    def flush(self) -> None:
        self.reader.force_flush()
        self._writer.retry()

    def close(self) -> None:
        self._writer.close()


def _delta_temporality() -> dict[type, Any]:
    """Includes gauges: otherwise every line would repeat the last value, and outlive newer ones of other processes.

    The SDK exports its gauge class under a private name only (1.45); `test_gauges_are_written_once` fails if it moves.
    """
    from opentelemetry.sdk.metrics import Counter, Histogram, _Gauge
    from opentelemetry.sdk.metrics.export import AggregationTemporality

    return dict.fromkeys((Counter, Histogram, _Gauge), AggregationTemporality.DELTA)


class RetryingLineWriter:
    """A text stream that keeps lines it could not write, at most MAX_PENDING_LINES, and writes them the next time."""

    closed = False

    def __init__(self, file: AppendOnlyFile, count_dropped: CountDropped) -> None:
        self._file = file
        self._count_dropped = count_dropped
        self._warning = OneTimeWarning(log)
        self._pending: deque[str] = deque()
        self._lock = Lock()

    def write(self, line: str) -> int:
        with self._lock:
            self._pending.append(line)
            self._write_pending()
            lost = [self._pending.popleft() for _ in range(len(self._pending) - MAX_PENDING_LINES)]
        if lost:
            self._count_dropped("metric", sum(line.count('"timeUnixNano"') for line in lost))
        return len(line)

    def retry(self) -> None:
        with self._lock:
            self._write_pending()

    def flush(self) -> None:
        """Does nothing: lines are written at once or kept."""

    def close(self) -> None:
        self._file.close()

    def _write_pending(self) -> None:
        try:
            while self._pending:
                self._file.write(self._pending[0])
                self._pending.popleft()
        except OSError as error:
            self._warning.log("metrics could not be written: %s", error.strerror)
