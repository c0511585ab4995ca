"""The metrics of this process, as OpenTelemetry's instruments: those that are declared, with the labels declared."""

import math
import re
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from kfm_pipelines.telemetry.metrics.names import METRICS, Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

# Further values of a label count together: names come from declarations, but whoever sends messages must not be able to
# make series without end.
MAX_SERIES = 200
OTHER = "other"
MAX_LABEL_LENGTH = 100
# What names one thing among very many: a digest or an id, an address, a key or an ARN.
_IDENTITY = re.compile(r"[0-9a-f]{16}|[0-9a-f]{8}-[0-9a-f]{4}-|://|:[^:]*:[^:]*:", re.IGNORECASE)


class MetricSeries:
    """The series of one metric, not more than so many. Reading one that is known takes no lock."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._names = frozenset(metric.labels)
        self._known: dict[tuple[str, ...], dict[str, str]] = {}
        self._other = dict.fromkeys(metric.labels, OTHER)
        self._lock = Lock()

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels to count under. Those of a known series are always the same object."""
        if labels.keys() != self._names:
            raise ValueError(f"{self._metric.name} has the labels {self._metric.labels}, not {tuple(labels)}")
        values = tuple(labels[name][:MAX_LABEL_LENGTH] for name in self._metric.labels)
        known = self._known.get(values)
        return self._labels(values) if known is None else known

    def _labels(self, values: tuple[str, ...]) -> dict[str, str]:
        values = tuple(limit_label(value) for value in values)
        with self._lock:
            if values not in self._known and len(self._known) >= MAX_SERIES:
                return self._other
            return self._known.setdefault(values, dict(zip(self._metric.labels, values, strict=True)))


def limit_label(value: str) -> str:
    """A label's value, cut; `other` when it names one thing among very many, or cannot be shown."""
    value = value[:MAX_LABEL_LENGTH]
    return value if value.isprintable() and not _IDENTITY.search(value) else OTHER


class Instruments:
    """Count, observe, set: by the metric's name. Several threads may."""

    def __init__(self, meter: "Meter | None") -> None:
        self._series = {metric.name: MetricSeries(metric) for metric in METRICS}
        self._instruments: dict[str, Any] = {}
        if meter is not None:
            self.use_meter(meter)

    def use_meter(self, meter: "Meter") -> None:
        """From now on tell it to this one."""
        self._instruments = {metric.name: _create_instrument(meter, metric) for metric in METRICS}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter. Nothing is still something: the series is there from then on."""
        said = self._series[name].labels(labels)
        if self._instruments and self._is_finite(amount):
            self._instruments[name].add(amount, said)

    def observe(self, name: str, value: float, **labels: str) -> None:
        said = self._series[name].labels(labels)
        if self._instruments and self._is_finite(value):
            self._instruments[name].record(value, said)

    def set(self, name: str, value: float, **labels: str) -> None:
        said = self._series[name].labels(labels)
        if self._instruments and self._is_finite(value):
            self._instruments[name].set(value, said)

    def _is_finite(self, value: float) -> bool:
        """One that is none would make a sum unknown for ever."""
        if math.isfinite(value):
            return True
        self.count("telemetry_dropped_total", signal="metric")
        return False


def _create_instrument(meter: "Meter", metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.description)
    if metric.kind == "gauge":
        return meter.create_gauge(metric.name, metric.unit, metric.description)
    bounds = [float(bound) for bound in metric.bounds]
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=bounds
    )
