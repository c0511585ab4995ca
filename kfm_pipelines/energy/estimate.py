"""Energy, carbon and cost of usage, measured or estimated. What is unknown is None, never zero."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from kfm_pipelines.declarations import DeclarationModel, NonEmptyText
from kfm_pipelines.declarations.dataset import load_model
from kfm_pipelines.energy.meter import GIGABYTE, Usage
from kfm_pipelines.errors import KfmError
from kfm_pipelines.services import Services
from kfm_pipelines.state.audit import save_snapshot

COEFFICIENTS_FILE = "telemetry/energy.yaml"
SECONDS_PER_HOUR = 3600
SECONDS_PER_KWH = 1000 * SECONDS_PER_HOUR

Method = Literal["measured", "estimated", "unknown"]

log = logging.getLogger(__name__)


class Coefficient(DeclarationModel):
    """A number and its source."""

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
        named: list[Coefficient] = [getattr(self, name) for name in Coefficients.model_fields]
        return tuple(dict.fromkeys(f"{one.source}, {one.year} ({one.region})" for one in named))


@dataclass(frozen=True, slots=True)
class Energy:
    """The cost of a piece of work. `method` is about the energy; carbon and money are always estimated."""

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


def sum_if_known(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else float(sum(value for value in known if value is not None))


def load_coefficients(resources: Path) -> Coefficients:
    return load_model(Coefficients, resources / COEFFICIENTS_FILE, COEFFICIENTS_FILE)


def coefficients_of(services: Services) -> Coefficients:
    return services.load_once("coefficients", lambda: load_coefficients(services.settings.resources))


def coefficients_digest(services: Services) -> str:
    document = coefficients_of(services).model_dump(mode="json")
    return services.load_once(
        "coefficients digest", lambda: save_snapshot(services.database, "energy-coefficients", document)
    )


def energy_of(services: Services, usage: Usage) -> Energy:
    """Returns UNKNOWN when the coefficients cannot be read, because work does not wait for a fix."""
    try:
        return estimate(coefficients_of(services), usage)
    except KfmError as error:
        log.warning("energy is unknown: %s", error)
        return UNKNOWN


def estimate(coefficients: Coefficients, usage: Usage) -> Energy:
    """Estimates from what is known; `usage.missing` names what is left out. Returns UNKNOWN without processor time."""
    method: Method = "measured" if usage.watt_seconds else "estimated"
    watt_seconds = usage.watt_seconds or _estimate_watt_seconds(coefficients, usage)
    if not watt_seconds:
        return UNKNOWN
    carbon_grams = watt_seconds / SECONDS_PER_KWH * coefficients.grid.value
    processor = _processor_seconds(usage) * coefficients.price_vcpu.value
    memory = (usage.gigabyte_seconds or 0.0) * coefficients.price_memory.value
    return Energy(method, watt_seconds, carbon_grams, (processor + memory) / SECONDS_PER_HOUR or None)


def _estimate_watt_seconds(coefficients: Coefficients, usage: Usage) -> float | None:
    if usage.cpu_seconds is None:
        return None
    idle, busy = coefficients.watts_idle.value, coefficients.watts_busy.value
    processor = _processor_seconds(usage) * idle + usage.cpu_seconds * (busy - idle)
    memory = (usage.gigabyte_seconds or 0.0) * coefficients.memory_watts.value
    network = (usage.network_bytes or 0) / GIGABYTE * coefficients.network.value * SECONDS_PER_KWH
    return (processor + memory + network) * coefficients.overhead.value


def _processor_seconds(usage: Usage) -> float:
    """A process occupies one processor while it runs, idle or not, and more when it is busy on several."""
    return max(usage.wall_seconds or 0.0, usage.cpu_seconds or 0.0)
