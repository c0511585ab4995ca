"""Energy and carbon of computing, estimated from processor time. Pure, but for reading the coefficients.

A processor draws something idle and more when busy; a data centre draws more than its machines; a grid emits so much
for a kilowatt-hour. What was not measured is unknown, which is None and never nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from kfm_pipelines.datasets import describe, read_yaml
from kfm_pipelines.declarations import Declared, Words
from kfm_pipelines.errors import DeclarationInvalid

FILE = "telemetry/energy.yaml"
SECONDS_PER_KWH = 3_600_000


class Coefficient(Declared):
    """A number, and where it comes from."""

    value: Annotated[float, Field(gt=0)]
    unit: Words
    source: Words
    year: Annotated[int, Field(ge=2000, le=2100)]
    region: Words


class Coefficients(Declared):
    watts_idle: Coefficient
    watts_busy: Coefficient
    memory_watts: Coefficient
    overhead: Coefficient
    grid: Coefficient

    @property
    def sources(self) -> tuple[str, ...]:
        """Who says so, each once."""
        named = (self.watts_idle, self.watts_busy, self.memory_watts, self.overhead, self.grid)
        return tuple(dict.fromkeys(f"{one.source}, {one.year} ({one.region})" for one in named))


@dataclass(frozen=True, slots=True)
class Energy:
    """What something cost, estimated."""

    watt_seconds: float
    carbon_grams: float


def load_coefficients(resources: Path) -> Coefficients:
    try:
        return Coefficients.model_validate(read_yaml(resources / FILE))
    except ValidationError as error:
        raise DeclarationInvalid(f"{FILE}: {describe(error)}") from None


def estimated(
    coefficients: Coefficients,
    cpu_seconds: float | None,
    *,
    vcpu_seconds: float | None = None,
    gigabyte_seconds: float = 0.0,
) -> Energy | None:
    """Of so much busy processor time, within so much that was held and with so much memory; None when no processor time
    was measured. By default nothing was held longer than it was busy."""
    if cpu_seconds is None or cpu_seconds <= 0:
        return None
    held = max(cpu_seconds, vcpu_seconds or 0.0)
    idle, busy = coefficients.watts_idle.value, coefficients.watts_busy.value
    machine = held * idle + cpu_seconds * (busy - idle) + gigabyte_seconds * coefficients.memory_watts.value
    watt_seconds = machine * coefficients.overhead.value
    return Energy(watt_seconds, watt_seconds / SECONDS_PER_KWH * coefficients.grid.value)
