"""The telemetry of one process: local files, flushed before it ends, and a collector if configured."""

import atexit
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from kfm_pipelines.settings import Settings
from kfm_pipelines.telemetry.line_files import CountDropped, RecordWriter
from kfm_pipelines.telemetry.logs.configure import error_fields
from kfm_pipelines.telemetry.metrics.instruments import Instruments, MetricsFile
from kfm_pipelines.telemetry.traces.spans import PresetIdGenerator, ServiceResource, Spans, SpansFile

if TYPE_CHECKING:
    from kfm_pipelines.telemetry.collector import Collector

RECORDS_FOLDER = "records"
SCOPE = "kfm_pipelines"

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Telemetry:
    metrics: Instruments
    spans: Spans
    records: RecordWriter
    sinks: tuple[SpansFile | MetricsFile, ...] = field(default=(), repr=False)
    collector: "Collector | None" = field(default=None, repr=False)

    def flush(self) -> None:
        """Writes everything emitted so far to the files, without waiting for a collector. Failures are logged."""
        for sink in self.sinks:
            try:
                sink.flush()
            except Exception as error:  # noqa: BLE001 - telemetry failures never stop a run
                log.warning("telemetry could not be written: %s", type(error).__name__)

    def close(self) -> None:
        """Flushes, and sends the rest to the collector. Safe to call twice."""
        _active.pop(self, None)
        self.flush()
        collector, self.collector = self.collector, None
        if collector is not None:
            collector.close()
            self.flush()  # the count of what it did not accept
        for sink in self.sinks:
            sink.close()
        self.records.close()


_active: dict[Telemetry, Settings] = {}


@contextmanager
def best_effort(telemetry: Telemetry, what: str, signal: str = "record") -> Iterator[None]:
    """Logs and counts any exception instead of raising it, so that telemetry failures never stop a run."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the work itself is done, or has still to be done
        log.warning("%s could not be recorded", what, extra=error_fields(error))
        with suppress(Exception):
            telemetry.metrics.count("telemetry_dropped_total", signal=signal)


def disabled_telemetry(settings: Settings) -> Telemetry:
    return Telemetry(Instruments(), Spans(), RecordWriter(None, settings.resources, lambda: None))


def open_telemetry(settings: Settings) -> Telemetry:
    if not settings.telemetry:
        return disabled_telemetry(settings)
    # The library logs a traceback for every failed write or send; we log one warning.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    metrics = Instruments()
    records = RecordWriter(
        settings.telemetry_folder / RECORDS_FOLDER,
        settings.resources,
        lambda: metrics.count("telemetry_dropped_total", signal="record"),
    )
    telemetry = Telemetry(metrics, Spans(), records)
    try:
        _start(telemetry, settings)
    except Exception as error:  # noqa: BLE001 - an invalid OTEL_ variable must not stop a run
        log.warning("metrics and spans are off: %s", error)
        return disabled_telemetry(settings)
    _active[telemetry] = settings
    return telemetry


def _start(telemetry: Telemetry, settings: Settings) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    def count_dropped(signal: str, number: int) -> None:
        telemetry.metrics.count("telemetry_dropped_total", number, signal=signal)

    service = {"service.name": "kfm-pipelines", "service.version": version("kfm-pipelines")}
    resource = ServiceResource(Resource.create(service).attributes)
    metrics_file = MetricsFile(settings.telemetry_folder, count_dropped)
    spans_file = SpansFile(settings.telemetry_folder, count_dropped)
    collector = _open_collector(settings, count_dropped)
    tracers = TracerProvider(resource=resource, id_generator=PresetIdGenerator(), shutdown_on_exit=False)
    tracers.add_span_processor(spans_file)
    readers = [metrics_file.reader]
    if collector and collector.span_processor:
        tracers.add_span_processor(collector.span_processor)
    if collector and collector.metric_reader:
        readers.append(collector.metric_reader)
    telemetry.metrics.use_meter(MeterProvider(readers, resource, shutdown_on_exit=False).get_meter(SCOPE))
    telemetry.spans.tracer = tracers.get_tracer(SCOPE)
    # Spans before metrics, which count the spans that could not be written.
    telemetry.sinks = (spans_file, metrics_file)
    telemetry.collector = collector


def _open_collector(settings: Settings, count_dropped: CountDropped) -> "Collector | None":
    if not settings.span_collector and not settings.metric_collector:
        return None
    from kfm_pipelines.telemetry.collector import Collector

    try:
        return Collector(settings.span_collector, settings.metric_collector, count_dropped)
    except Exception as error:  # noqa: BLE001 - an invalid OTEL_ variable must not stop a run
        log.warning("nothing is sent to a collector: %s", error)
        return None


def _restart_in_child() -> None:
    """Starts afresh after a fork: the parent writes its own pending data, and its locks may be held here for ever."""
    for telemetry, settings in _active.items():
        _start(telemetry, settings)


def _close_all() -> None:
    """Closes what Dagster runs leave open."""
    for telemetry in list(_active):
        telemetry.close()


os.register_at_fork(after_in_child=_restart_in_child)
atexit.register(_close_all)
