"""Spans with what they cost: of a piece of work, and of the parts it has."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm_pipelines.energy.coefficients import energy_of
from kfm_pipelines.energy.estimate import Energy
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.traces.spans import Value, said_by_open_span

if TYPE_CHECKING:
    from opentelemetry.trace import Span

INPUTS, OUTPUTS = "kfm.lineage.inputs", "kfm.lineage.outputs"
# What the span of the whole says that those of its parts have to say too.
ABOUT = ("kfm.pipeline", "kfm.key", "kfm.stage", "kfm.version", INPUTS)


@contextmanager
def part(services: Services, name: str, attributes: Mapping[str, Value] | None = None) -> Iterator[None]:
    """A part of the work at hand: it says of what it is as the whole does, and what it cost by itself."""
    meter = Meter()
    about = {**said_by_open_span(ABOUT), OUTPUTS: [], **(attributes or {})}
    with services.telemetry.spans.span(name, about) as span:
        try:
            yield
        finally:
            say_cost(span, energy_of(services, meter.read()))


def say_cost(span: "Span | None", energy: Energy) -> None:
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
