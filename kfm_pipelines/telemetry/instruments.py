"""The metrics of this process, as OpenTelemetry's instruments: those that are declared, with the labels declared."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kfm_pipelines.telemetry.metric_names import BY_NAME, METRICS, Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

# Further values of a label count together: names come from declarations, but whoever sends messages must not be able to
# make series without end.
MOST_SERIES = 200
OTHER = "other"
LONGEST_LABEL = 100


class Instruments:
    """Count, observe, set: by the metric's name."""

    def __init__(self, meter: "Meter | None") -> None:
        self._instruments: dict[str, Any] = {} if meter is None else {one.name: _made(meter, one) for one in METRICS}
        self._series: dict[str, set[tuple[str, ...]]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter. Nothing is still something: the series is there from then on."""
        said = self._labels(BY_NAME[name], labels)
        if self._instruments:
            self._instruments[name].add(amount, said)

    def observe(self, name: str, value: float, **labels: str) -> None:
        said = self._labels(BY_NAME[name], labels)
        if self._instruments:
            self._instruments[name].record(value, said)

    def set(self, name: str, value: float, **labels: str) -> None:
        said = self._labels(BY_NAME[name], labels)
        if self._instruments:
            self._instruments[name].set(value, said)

    def _labels(self, metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
        if set(labels) != set(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
        values = tuple(labels[name][:LONGEST_LABEL] for name in metric.labels)
        known = self._series.setdefault(metric.name, set())
        if values not in known:
            if len(known) >= MOST_SERIES:
                values = tuple(OTHER for _ in values)
            known.add(values)
        return dict(zip(metric.labels, values, strict=True))


def _made(meter: "Meter", metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.says)
    if metric.kind == "gauge":
        return meter.create_gauge(metric.name, metric.unit, metric.says)
    bounds = [float(bound) for bound in metric.bounds]
    return meter.create_histogram(metric.name, metric.unit, metric.says, explicit_bucket_boundaries_advisory=bounds)
