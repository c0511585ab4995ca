"""Energy, carbon and cost of what was used: measured where the machine counts, else estimated. Pure, but for
reading the coefficients.

A processor draws something idle and more when busy, memory and the network draw as well; a data centre draws more than
its machines; a grid emits so much for a kilowatt-hour. What was not measured is unknown: None, and never nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from kfm_pipelines.declarations import DeclarationModel, NonEmptyText
from kfm_pipelines.declarations.dataset import format_validation_error, read_yaml
from kfm_pipelines.energy.meter import GIGABYTE, Usage
from kfm_pipelines.errors import DeclarationInvalid

COEFFICIENTS_FILE = "telemetry/energy.yaml"
SECONDS_PER_HOUR = 3600
SECONDS_PER_KWH = 1000 * SECONDS_PER_HOUR

Method = Literal["measured", "estimated", "unknown"]


class Coefficient(DeclarationModel):
    """A number, and where it comes from."""

    value: Annotated[float, Field(gt=0)]
    unit: NonEmptyText
    source: NonEmptyText
    year: Annotated[int, Field(ge=2000, le=2100)]
    region: NonEmptyText


class Coefficients(DeclarationModel):
    watts_idle: Coefficient
    watts_busy: Coefficient
    memory_watts: Coefficient
    network: Coefficient
    overhead: Coefficient
    grid: Coefficient
    price_vcpu: Coefficient
    price_memory: Coefficient

    @property
    def sources(self) -> tuple[str, ...]:
        """Who says so, each once."""
        named: list[Coefficient] = [getattr(self, name) for name in Coefficients.model_fields]
        return tuple(dict.fromkeys(f"{one.source}, {one.year} ({one.region})" for one in named))


@dataclass(frozen=True, slots=True)
class Energy:
    """What something cost. Carbon and money are always estimated; `method` is about the energy: `measured` is what the
    counters of the whole machine say, `estimated` follows from what was used."""

    method: Method
    watt_seconds: float | None
    carbon_grams: float | None
    cost_usd: float | None

    @property
    def energy_kwh(self) -> float | None:
        return None if self.watt_seconds is None else self.watt_seconds / SECONDS_PER_KWH

    @property
    def co2e_kg(self) -> float | None:
        return None if self.carbon_grams is None else self.carbon_grams / 1000


UNKNOWN = Energy("unknown", None, None, None)


def load_coefficients(resources: Path) -> Coefficients:
    try:
        return Coefficients.model_validate(read_yaml(resources / COEFFICIENTS_FILE))
    except ValidationError as error:
        raise DeclarationInvalid(f"{COEFFICIENTS_FILE}: {format_validation_error(error)}") from None


def estimate(coefficients: Coefficients, usage: Usage) -> Energy:
    """Of what is known of it: `usage.missing` says what is not in an estimate. Without processor time, and of no time
    at all, nothing can be said."""
    method: Method = "measured" if usage.watt_seconds else "estimated"
    watt_seconds = usage.watt_seconds or _estimate_watt_seconds(coefficients, usage)
    if not watt_seconds:
        return UNKNOWN
    carbon_grams = watt_seconds / SECONDS_PER_KWH * coefficients.grid.value
    return Energy(method, watt_seconds, carbon_grams, _cost_usd(coefficients, usage))


def _estimate_watt_seconds(coefficients: Coefficients, usage: Usage) -> float | None:
    if usage.cpu_seconds is None:
        return None
    idle, busy = coefficients.watts_idle.value, coefficients.watts_busy.value
    processor = _processor_seconds(usage) * idle + usage.cpu_seconds * (busy - idle)
    memory = (usage.gigabyte_seconds or 0.0) * coefficients.memory_watts.value
    network = (usage.network_bytes or 0) / GIGABYTE * coefficients.network.value * SECONDS_PER_KWH
    return (processor + memory + network) * coefficients.overhead.value


def _cost_usd(coefficients: Coefficients, usage: Usage) -> float | None:
    processor = _processor_seconds(usage) * coefficients.price_vcpu.value
    memory = (usage.gigabyte_seconds or 0.0) * coefficients.price_memory.value
    return (processor + memory) / SECONDS_PER_HOUR or None


def _processor_seconds(usage: Usage) -> float:
    """A process holds one processor as long as it runs, idle or not, and more than one when it is busy on more."""
    return max(usage.wall_seconds or 0.0, usage.cpu_seconds or 0.0)
