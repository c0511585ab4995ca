"""The telemetry of one process: its metrics, spans and records, opened when first used and flushed before it ends.

Everything goes into files of this machine, which nothing has to be running for. Where a collector is named it goes
there too, beside the work and never in its way.
"""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kfm_pipelines.settings import Settings
from kfm_pipelines.telemetry.instruments import Instruments
from kfm_pipelines.telemetry.records import Records
from kfm_pipelines.telemetry.spans import GivenIds, Spans

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

RECORDS_FOLDER = "records"
SCOPE = "kfm_pipelines"

log = logging.getLogger(__name__)


class Part(Protocol):
    """Something that keeps what it was told until it is flushed."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Telemetry:
    metrics: Instruments
    spans: Spans
    records: Records
    parts: tuple[Part, ...] = field(default=(), repr=False)

    def flush(self) -> None:
        """Have written what was told so far. Telemetry that fails is told of; it stops nothing."""
        for part in self.parts:
            try:
                part.flush()
            except Exception as error:  # noqa: BLE001 - whatever it is, work goes on
                log.warning("telemetry could not be written: %s", type(error).__name__)

    def close(self) -> None:
        self.flush()
        for part in self.parts:
            part.close()
        self.records.close()


def silent(settings: Settings) -> Telemetry:
    """Telemetry that tells nobody anything."""
    return Telemetry(Instruments(None), Spans(None), Records(None, settings.resources, lambda: None))


def open_telemetry(settings: Settings) -> Telemetry:
    if not settings.telemetry:
        return silent(settings)
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from kfm_pipelines.telemetry.files import MetricsFile, SpansFile

    resource = _resource()
    metrics_file, spans_file = MetricsFile(settings.telemetry_folder), SpansFile(settings.telemetry_folder)
    meters = MeterProvider([metrics_file.reader], resource, shutdown_on_exit=False)
    tracers = TracerProvider(resource=resource, id_generator=GivenIds(), shutdown_on_exit=False)
    tracers.add_span_processor(spans_file)
    metrics = Instruments(meters.get_meter(SCOPE))
    folder = settings.telemetry_folder / RECORDS_FOLDER
    records = Records(folder, settings.resources, lambda: metrics.count("telemetry_dropped_total", signal="record"))
    # Spans before metrics: those that could not be written are counted.
    return Telemetry(metrics, Spans(tracers.get_tracer(SCOPE)), records, (spans_file, metrics_file))


def _resource() -> "Resource":
    from importlib.metadata import version

    from opentelemetry.sdk.resources import Resource

    return Resource.create({"service.name": "kfm-pipelines", "service.version": version("kfm-pipelines")})
