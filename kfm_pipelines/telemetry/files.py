"""The files of this machine that metrics and spans go into, as OTLP's JSON, one line for each time they are flushed.

Where nothing can be written, on a full disk or in a folder that is not ours, work goes on. Metrics are kept for the
next time, some of them; spans are dropped and counted.
"""

import logging
import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import IO, cast

from opentelemetry.exporter.otlp.json.file import FileMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram
from opentelemetry.sdk.metrics import _Gauge as Gauge
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from kfm_pipelines.telemetry.append_only import AppendOnlyFile
from kfm_pipelines.telemetry.best_effort import OneTimeWarning
from kfm_pipelines.telemetry.metrics.reader import METRICS_FILE
from kfm_pipelines.telemetry.traces.encode import encode_line
from kfm_pipelines.telemetry.traces.reader import SPANS_FILE

SPAN_BATCH_SIZE = 200
MAX_PENDING_LINES = 50

CountDropped = Callable[[str, int], None]  # of which signal, how many

log = logging.getLogger(__name__)


class MetricsFile:
    """What the process counted since the last flush, as one line; nothing when that is nothing."""

    def __init__(self, folder: Path, count_dropped: CountDropped) -> None:
        # What happened since the last line: lines of any number of processes, long gone ones too, then add up.
        delta: dict[type, AggregationTemporality] = {}
        delta |= dict.fromkeys((Counter, Histogram, Gauge), AggregationTemporality.DELTA)
        self._writer = RetryingLineWriter(AppendOnlyFile(folder / METRICS_FILE), count_dropped)
        exporter = FileMetricExporter(stream=cast(IO[str], self._writer), preferred_temporality=delta)
        # No clock: it is written when a stage or a tick has ended.
        self.reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)

    def flush(self) -> None:
        self.reader.force_flush()
        self._writer.retry()

    def close(self) -> None:
        self._writer.close()


class RetryingLineWriter:
    """A text stream that keeps lines it could not write and writes them first the next time: what they count would be
    missing for ever. When there are too many the oldest are dropped."""

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
        """Every write is with the system already, or kept."""

    def close(self) -> None:
        self._file.close()

    def _write_pending(self) -> None:
        try:
            while self._pending:
                self._file.write(self._pending[0])
                self._pending.popleft()
        except OSError as error:
            self._warning.log("metrics could not be written: %s", error.strerror)


class SpansFile(SpanProcessor):
    """Spans, some at a time: one line each would be a write each."""

    def __init__(self, folder: Path, count_dropped: CountDropped) -> None:
        self._file = AppendOnlyFile(folder / SPANS_FILE)
        self._count_dropped = count_dropped
        self._warning = OneTimeWarning(log)
        self._pending: list[ReadableSpan] = []
        self._lock = Lock()

    def on_end(self, span: ReadableSpan) -> None:
        with self._lock:
            self._pending.append(span)
            many = len(self._pending) >= SPAN_BATCH_SIZE
        if many:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            ended, self._pending = self._pending, []
        if not ended:
            return
        try:
            self._file.write(encode_line(ended))
        except Exception as error:  # noqa: BLE001 - whoever ends a span is at work on something else
            why = getattr(error, "strerror", None) or type(error).__name__
            self._warning.log("spans could not be written: %s", why)
            self._count_dropped("span", len(ended))

    def close(self) -> None:
        self._file.close()
