"""What a replay will cost, going by what keys of the dataset have cost so far. An estimate, and it says so; what was
never measured is unknown."""

from dataclasses import dataclass
from typing import Any

from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.replayable import measured
from kfm_pipelines.telemetry.energy import energy_of, load_coefficients


@dataclass(frozen=True, slots=True)
class Estimate:
    """For so many keys. None is unknown."""

    keys: int
    measured_keys: int
    cpu_seconds: float | None
    wall_seconds: float | None
    bytes: float | None
    energy_ws: float | None
    carbon_grams: float | None
    cost_usd: float | None
    sources: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        return {
            "keys": self.keys,
            "measured_keys": self.measured_keys,
            "cpu_seconds": _rounded(self.cpu_seconds),
            "wall_seconds": _rounded(self.wall_seconds),
            "bytes": None if self.bytes is None else round(self.bytes),
            "energy_ws": _rounded(self.energy_ws),
            "carbon_grams": _rounded(self.carbon_grams),
            "cost_usd": _rounded(self.cost_usd),
            "sources": list(self.sources),
        }


def estimate(workshop: Workshop, dataset: str, keys: int) -> Estimate:
    coefficients = load_coefficients(workshop.settings.resources)
    past = measured(workshop.database, dataset)
    cpu_seconds = _times(past.usage.cpu_seconds, keys)
    energy = energy_of(coefficients, past.usage)
    return Estimate(
        keys=keys,
        measured_keys=past.keys,
        cpu_seconds=cpu_seconds,
        wall_seconds=_times(past.wall_seconds, keys),
        bytes=_times(past.bytes, keys),
        energy_ws=_times(energy.watt_seconds, keys),
        carbon_grams=_times(energy.carbon_grams, keys),
        cost_usd=_times(energy.cost_usd, keys),
        sources=coefficients.sources,
    )


def _times(average: float | None, keys: int) -> float | None:
    return None if average is None else average * keys


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
