"""The telemetry of one process: its metrics, spans and records, opened when first used and flushed before it ends.

Everything goes into files of this machine, which nothing has to be running for. Where a collector is named it goes
there too, beside the work and never in its way.
"""

import atexit
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kfm_pipelines.settings import Settings
from kfm_pipelines.telemetry.metrics.instruments import Instruments
from kfm_pipelines.telemetry.records import RecordWriter
from kfm_pipelines.telemetry.traces.spans import PresetIdGenerator, Spans

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from kfm_pipelines.telemetry.collector import Collector
    from kfm_pipelines.telemetry.files import CountDropped

RECORDS_FOLDER = "records"
SCOPE = "kfm_pipelines"

log = logging.getLogger(__name__)


class TelemetrySink(Protocol):
    """Something that keeps what it was told until it is flushed."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class Telemetry:
    metrics: Instruments
    spans: Spans
    records: RecordWriter
    sinks: tuple[TelemetrySink, ...] = field(default=(), repr=False)
    collector: "Collector | None" = field(default=None, repr=False)

    def flush(self) -> None:
        """Have written what was told so far, into files alone: nobody waits for a collector. Telemetry that fails is
        told of; it stops nothing."""
        for part in self.sinks:
            try:
                part.flush()
            except Exception as error:  # noqa: BLE001 - whatever it is, work goes on
                log.warning("telemetry could not be written: %s", type(error).__name__)

    def close(self) -> None:
        """Flush, and send to a collector what it has not got yet. Safe to call twice."""
        _active.pop(self, None)
        self.flush()
        collector, self.collector = self.collector, None
        if collector is not None:
            collector.close()
            self.flush()  # how much it did not take
        for part in self.sinks:
            part.close()
        self.records.close()


_active: dict[Telemetry, Settings] = {}


def disabled_telemetry(settings: Settings) -> Telemetry:
    """Telemetry that tells nobody anything."""
    return Telemetry(Instruments(None), Spans(None), RecordWriter(None, settings.resources, lambda: None))


def open_telemetry(settings: Settings) -> Telemetry:
    if not settings.telemetry:
        return disabled_telemetry(settings)
    # What the library thinks of a full disk or a collector that is away comes with tracebacks, every time. We say it.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    metrics = Instruments(None)
    folder = settings.telemetry_folder / RECORDS_FOLDER
    records = RecordWriter(
        folder, settings.resources, lambda: metrics.count("telemetry_dropped_total", signal="record")
    )
    telemetry = Telemetry(metrics, Spans(None), records)
    try:
        _start(telemetry, settings)
    except Exception as error:  # noqa: BLE001 - a variable that OpenTelemetry cannot use stops no work
        log.warning("no metrics and spans are told: %s", error)
        return disabled_telemetry(settings)
    _active[telemetry] = settings
    return telemetry


def _start(telemetry: Telemetry, settings: Settings) -> None:
    """With nothing told yet."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from kfm_pipelines.telemetry.files import MetricsFile, SpansFile

    def dropped(signal: str, number: int) -> None:
        telemetry.metrics.count("telemetry_dropped_total", number, signal=signal)

    resource = _resource()
    metrics_file = MetricsFile(settings.telemetry_folder, dropped)
    spans_file = SpansFile(settings.telemetry_folder, dropped)
    collector = _collector(settings, dropped)
    tracers = TracerProvider(resource=resource, id_generator=PresetIdGenerator(), shutdown_on_exit=False)
    tracers.add_span_processor(spans_file)
    if collector and collector.spans:
        tracers.add_span_processor(collector.spans)
    readers = [metrics_file.reader, *([collector.metrics.reader] if collector and collector.metrics else [])]
    telemetry.metrics.use_meter(MeterProvider(readers, resource, shutdown_on_exit=False).get_meter(SCOPE))
    telemetry.spans.use_tracer(tracers.get_tracer(SCOPE))
    # Spans before metrics: those that could not be written are counted.
    telemetry.sinks = (spans_file, metrics_file)
    telemetry.collector = collector


def _collector(settings: Settings, count_dropped: "CountDropped") -> "Collector | None":
    if not settings.span_collector and not settings.metric_collector:
        return None
    from kfm_pipelines.telemetry.collector import Collector

    try:
        return Collector(settings.span_collector, settings.metric_collector, count_dropped)
    except Exception as error:  # noqa: BLE001 - a variable that OpenTelemetry cannot use stops nothing
        log.warning("nothing is sent to a collector: %s", error)
        return None


def _resource() -> "Resource":
    from importlib.metadata import version

    from opentelemetry.sdk.resources import Resource

    return Resource.create({"service.name": "kfm-pipelines", "service.version": version("kfm-pipelines")})


def _restart_in_child() -> None:
    """What the parent has not written yet is for it to write, and locks that its threads held stay locked here."""
    for telemetry, settings in _active.items():
        _start(telemetry, settings)


def _close_all() -> None:
    """A run of Dagster ends without saying so."""
    for telemetry in list(_active):
        telemetry.close()


os.register_at_fork(after_in_child=_restart_in_child)
atexit.register(_close_all)
