"""Spans with what they cost: of a piece of work, and of the parts it has."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm_pipelines.energy.coefficients import energy_of
from kfm_pipelines.energy.estimate import Energy
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.traces.spans import SpanValue, current_span_attributes

if TYPE_CHECKING:
    from opentelemetry.trace import Span

INPUTS, OUTPUTS = "kfm.lineage.inputs", "kfm.lineage.outputs"
# What the span of the whole says that those of its parts have to say too.
INHERITED_ATTRIBUTES = ("kfm.pipeline", "kfm.key", "kfm.stage", "kfm.version", INPUTS)


@contextmanager
def metered_span(services: Services, name: str, attributes: Mapping[str, SpanValue] | None = None) -> Iterator[None]:
    """A part of the work at hand: it says of what it is as the whole does, and what it cost by itself."""
    meter = Meter()
    about = {**current_span_attributes(INHERITED_ATTRIBUTES), OUTPUTS: [], **(attributes or {})}
    with services.telemetry.spans.span(name, about) as span:
        try:
            yield
        finally:
            set_cost_attributes(span, energy_of(services, meter.read()))


def set_cost_attributes(span: "Span | None", energy: Energy) -> None:
    """What is not known is not told."""
    if span is None:
        return
    span.set_attribute("kfm.energy_method", energy.method)
    for name, value in (
        ("kfm.energy_kwh", energy.energy_kwh),
        ("kfm.co2e_kg", energy.co2e_kg),
        ("kfm.cost_usd", energy.cost_usd),
    ):
        if value is not None:
            span.set_attribute(name, value)
