"""What all processes of a home have told, in Prometheus's text format, with the names and labels as declared.

Prometheus's client gives a counter the name that ends in `_total`, whatever it was called. A counter that is declared
under another name is therefore shown without a type; `rate()` and everything else work on it all the same. Units stay
out of names for the same reason: names are those of `metric_names`.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kfm_pipelines.telemetry.metrics.names import METRICS, Metric
from kfm_pipelines.telemetry.metrics.reader import MetricsFollower
from kfm_pipelines.telemetry.metrics.totals import Distribution, Totals

__all__ = ["CONTENT_TYPE", "Exposition"]

_FAMILIES: Mapping[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "untyped": UnknownMetricFamily,
}


class Exposition(Collector):
    """Every declared metric, also those that nobody has told anything of yet."""

    def __init__(self, folder: Path) -> None:
        self._follower = MetricsFollower(folder)
        self._lock = Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """As things are now. Several may ask at once."""
        with self._lock:
            return generate_latest(self._registry)

    def describe(self) -> list[Family]:
        """Nothing: it is asked for when the registry is made, and reading the file can wait until somebody scrapes."""
        return []

    def collect(self) -> Iterator[Family]:
        totals = self._follower.totals()
        for metric in METRICS:
            yield _family(metric, totals)


def _family(metric: Metric, totals: Totals) -> Family:
    """With its HELP and TYPE, and a sample for each series."""
    named_so = metric.kind != "counter" or metric.prometheus.endswith("_total")
    made = _FAMILIES[metric.kind] if named_so else _FAMILIES["untyped"]
    family = made(metric.prometheus, metric.description, labels=metric.labels)
    for labels, value in totals.series(metric.name):
        if isinstance(value, Distribution):
            family.add_metric(labels, _buckets(value), value.total)
        else:
            family.add_metric(labels, value)
    return cast(Family, family)


def _buckets(distribution: Distribution) -> list[tuple[str, float]]:
    """Up to each bound, everything below it included."""
    bounds = [*(str(float(bound)) for bound in distribution.bounds), "+Inf"]
    return list(zip(bounds, accumulate(distribution.counts), strict=True))
