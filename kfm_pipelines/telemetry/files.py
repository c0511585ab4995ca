"""The files of this machine that metrics and spans go into, as OTLP's JSON, one line for each time they are flushed."""

import math
from pathlib import Path
from typing import IO, cast

from opentelemetry.exporter.otlp.json.file import FileMetricExporter, FileSpanExporter
from opentelemetry.sdk.metrics import Counter, Histogram
from opentelemetry.sdk.metrics._internal.instrument import Gauge
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from kfm_pipelines.telemetry.append_only import AppendOnly

METRICS_FILE = "metrics.jsonl"
SPANS_FILE = "spans.jsonl"
SPANS_AT_ONCE = 200


class MetricsFile:
    """What the process counted since the last flush, as one line; nothing when that is nothing."""

    def __init__(self, folder: Path) -> None:
        # What happened since the last line: lines of any number of processes, long gone ones too, then add up.
        delta: dict[type, AggregationTemporality] = {}
        delta |= dict.fromkeys((Counter, Histogram, Gauge), AggregationTemporality.DELTA)
        self._file = AppendOnly(folder / METRICS_FILE)
        exporter = FileMetricExporter(stream=cast(IO[str], self._file), preferred_temporality=delta)
        # No clock: it is written when a stage or a tick has ended.
        self.reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)

    def flush(self) -> None:
        self.reader.force_flush()

    def close(self) -> None:
        self._file.close()


class SpansFile(SpanProcessor):
    """Spans, some at a time: one line each would take a third longer."""

    def __init__(self, folder: Path) -> None:
        self._file = AppendOnly(folder / SPANS_FILE)
        self._exporter = FileSpanExporter(stream=cast(IO[str], self._file))
        self._ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)
        if len(self._ended) >= SPANS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._exporter.export(ended)

    def close(self) -> None:
        self._file.close()
