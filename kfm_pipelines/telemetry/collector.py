"""Sends metrics and spans to an OTLP collector, in threads of their own and never in the way of work."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from kfm_pipelines.telemetry.line_files import CountDropped, OneTimeWarning

CLOSE_TIMEOUT_SECONDS = 2.0
MAX_QUEUED_SPANS = 4096

log = logging.getLogger(__name__)
_unresponsive: set[str] = set()  # addresses that this process has waited for in vain


class Collector:
    """Sends spans and metrics to their addresses; either address may be missing. Failed batches are counted."""

    def __init__(self, spans: str | None, metrics: str | None, count_dropped: CountDropped) -> None:
        self._addresses = {address for address in (spans, metrics) if address}
        self._count_dropped = count_dropped
        self._warning = OneTimeWarning(log)
        self.span_processor = (
            BatchSpanProcessor(_SpanExporter(spans, self._record_failure), max_queue_size=MAX_QUEUED_SPANS)
            if spans
            else None
        )
        self.metric_reader = (
            PeriodicExportingMetricReader(_MetricExporter(metrics, self._record_failure)) if metrics else None
        )
        # The SDK's shutdown takes no timeout, and an interpreter that is ending starts no threads.
        self._closing = Event()
        self._closer = Thread(target=self._shut_down_spans, name="kfm-last-spans", daemon=True)
        self._closer.start()

    def close(self) -> None:
        """Sends what is left, for at most CLOSE_TIMEOUT_SECONDS, and waits for an unresponsive address only once."""
        deadline = time.monotonic() + (0.0 if self._addresses & _unresponsive else CLOSE_TIMEOUT_SECONDS)
        self._closing.set()
        if self.metric_reader:
            self.metric_reader.shutdown(max(0.0, deadline - time.monotonic()) * 1000)
            if time.monotonic() >= deadline:
                self._record_failure("metric", 1)
        self._closer.join(max(0.0, deadline - time.monotonic()))
        if self._closer.is_alive():
            self._record_failure("span", 1)
        if time.monotonic() >= deadline:
            _unresponsive.update(self._addresses)

    def _shut_down_spans(self) -> None:
        self._closing.wait()
        if self.span_processor:
            self.span_processor.shutdown()  # type: ignore[no-untyped-call]

    def _record_failure(self, signal: str, number: int) -> None:
        hosts = sorted({urlsplit(address).netloc.rpartition("@")[2] for address in self._addresses})  # no password
        self._warning.log("the collector at %s does not accept telemetry; the files have it", ", ".join(hosts))
        self._count_dropped(signal, number)


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, address: str, record_failure: Callable[[str, int], None]) -> None:
        super().__init__(endpoint=address)
        self._record_failure = record_failure

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._record_failure("span", len(spans))
        return result


class _MetricExporter(OTLPMetricExporter):
    """Sends nothing in a forked child, which has an exporter of its own: it would send the parent's counts again."""

    def __init__(self, address: str, record_failure: Callable[[str, int], None]) -> None:
        super().__init__(endpoint=address)
        self._record_failure = record_failure
        self._process_id = os.getpid()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        if os.getpid() != self._process_id:
            return MetricExportResult.SUCCESS
        result = super().export(metrics_data, timeout_millis, **kwargs)
        if result is not MetricExportResult.SUCCESS:
            self._record_failure("metric", 1)
        return result
