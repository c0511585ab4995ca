"""Metrics and spans sent to a collector by OTLP over HTTP, beside the files and never in the way of work.

OpenTelemetry's own threads do the sending, and only the end of a process waits for them, not for long. What could not
be sent is counted, and said once. How to send (headers, certificates, compression, intervals) is left to the exporters
and their usual variables.
"""

import logging
import os
import time
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from kfm_pipelines.telemetry.best_effort import OneTimeWarning
from kfm_pipelines.telemetry.files import CountDropped

CLOSE_TIMEOUT_SECONDS = 2.0
# A batch of many keys ends its spans faster than they are sent; the oldest go when there are more.
MAX_QUEUED_SPANS = 4096

log = logging.getLogger(__name__)
_unresponsive: set[str] = set()  # for these addresses, in this process


class Collector:
    """Where spans and metrics are sent; either address may be missing."""

    def __init__(self, spans: str | None, metrics: str | None, count_dropped: CountDropped) -> None:
        complaint = OneTimeWarning(log)
        self._addresses = {address for address in (spans, metrics) if address}
        self.spans = SpanSender(spans, count_dropped, complaint) if spans else None
        self.metrics = MetricSender(metrics, count_dropped, complaint) if metrics else None

    def close(self) -> None:
        """Send what is left, both side by side, for as long as there is patience; count what then is not sent. A
        process may have several to close; it waits for the same address in vain only once."""
        deadline = time.monotonic() + (0.0 if self._addresses & _unresponsive else CLOSE_TIMEOUT_SECONDS)
        if self.spans:
            self.spans.begin_shutdown()
        if self.metrics:
            self.metrics.shutdown(deadline)
        if self.spans:
            self.spans.finish_shutdown(deadline)
        if time.monotonic() >= deadline:
            _unresponsive.update(self._addresses)


class DeliveryCounter:
    """Counts what was handed over and did not arrive, for one exporter, which hands over one batch at a time."""

    def __init__(self, signal: str, address: str, count_dropped: CountDropped, warning: OneTimeWarning) -> None:
        self._signal, self._count_dropped, self._warning = signal, count_dropped, warning
        place = urlsplit(address)
        self._host = f"{place.hostname}:{place.port}" if place.port else place.hostname  # and no password
        self._lock = Lock()
        self._in_flight = 0
        self._abandoned = False
        self.attempted = 0

    def start_batch(self, number: int) -> None:
        with self._lock:
            self.attempted += number
            self._in_flight = number

    def finish_batch(self, *, succeeded: bool) -> None:
        with self._lock:
            lost = 0 if succeeded or self._abandoned else self._in_flight
            self._in_flight = 0
        self.count_lost(lost)

    def abandon(self) -> None:
        """Nobody waits any longer: what is under way counts as lost."""
        with self._lock:
            self._abandoned, lost = True, self._in_flight
        self.count_lost(lost)

    def count_lost(self, number: int) -> None:
        if number > 0:
            self._warning.log("the collector at %s does not take telemetry; the files have it", self._host)
            self._count_dropped(self._signal, number)


class SpanSender(BatchSpanProcessor):
    """Spans on their way to a collector. Every one that ends is sent or counted as dropped."""

    def __init__(self, address: str, count_dropped: CountDropped, warning: OneTimeWarning) -> None:
        self._deliveries = DeliveryCounter("span", address, count_dropped, warning)
        self._lock = Lock()
        self._queued = 0  # to the queue, without those that it pushed out
        super().__init__(_SpanExporter(address, self._deliveries), max_queue_size=MAX_QUEUED_SPANS)
        # Begun now: an interpreter that is ending starts no threads.
        self._shutdown_requested = Event()
        self._shutdown_thread = Thread(target=self._run_shutdown, name="kfm-last-spans", daemon=True)
        self._shutdown_thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        with self._lock:
            full = self._queued - self._deliveries.attempted >= MAX_QUEUED_SPANS
            self._queued += not full
            super().on_end(span)
        if full:
            self._deliveries.count_lost(1)

    def begin_shutdown(self) -> None:
        self._shutdown_requested.set()

    def finish_shutdown(self, deadline: float) -> None:
        self._shutdown_thread.join(max(0.0, deadline - time.monotonic()))
        self._deliveries.abandon()
        self._deliveries.count_lost(self._queued - self._deliveries.attempted)

    def _run_shutdown(self) -> None:
        self._shutdown_requested.wait()
        self.shutdown()  # type: ignore[no-untyped-call]


class MetricSender:
    """Metrics on their way to a collector, every minute or as often as the variables say, and at the end."""

    def __init__(self, address: str, count_dropped: CountDropped, warning: OneTimeWarning) -> None:
        self._deliveries = DeliveryCounter("metric", address, count_dropped, warning)
        self.reader = PeriodicExportingMetricReader(_MetricExporter(address, self._deliveries))

    def shutdown(self, deadline: float) -> None:
        self.reader.shutdown(max(0.0, deadline - time.monotonic()) * 1000)
        self._deliveries.abandon()


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, address: str, deliveries: DeliveryCounter) -> None:
        super().__init__(endpoint=address)
        self._deliveries = deliveries

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._deliveries.start_batch(len(spans))
        result = super().export(spans)
        self._deliveries.finish_batch(succeeded=result is SpanExportResult.SUCCESS)
        return result


class _MetricExporter(OTLPMetricExporter):
    """A forked child has one of its own: there this one sends nothing, or everything would be told twice."""

    def __init__(self, address: str, deliveries: DeliveryCounter) -> None:
        super().__init__(endpoint=address)
        self._deliveries = deliveries
        self._process_id = os.getpid()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        if os.getpid() != self._process_id:
            return MetricExportResult.SUCCESS
        self._deliveries.start_batch(_count_points(metrics_data))
        result = super().export(metrics_data, timeout_millis, **kwargs)
        self._deliveries.finish_batch(succeeded=result is MetricExportResult.SUCCESS)
        return result


def _count_points(data: MetricsData) -> int:
    scopes = (scope for resource in data.resource_metrics for scope in resource.scope_metrics)
    return sum(len(metric.data.data_points) for scope in scopes for metric in scope.metrics)
