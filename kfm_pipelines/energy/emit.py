"""What stages have cost, as metrics and records. Measured and estimated are never added up."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import add
from typing import Any

from kfm_pipelines.energy.coefficients import coefficients_digest, coefficients_of, energy_of
from kfm_pipelines.energy.ledger import EnergyEntry, record_entries, record_lost_stages
from kfm_pipelines.energy.meter import Usage
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.best_effort import best_effort


def emit_costs(services: Services, entries: Sequence[EnergyEntry]) -> None:
    """Of one run: all keys of a stage together, each method by itself."""
    together: dict[tuple[str, str], list[EnergyEntry]] = defaultdict(list)
    for entry in entries:
        together[entry.stage, entry.energy.method].append(entry)
    for (stage, method), some in together.items():
        _emit_stage_costs(services, stage, method, some)


def _emit_stage_costs(services: Services, stage: str, method: str, entries: Sequence[EnergyEntry]) -> None:
    telemetry, first = services.telemetry, entries[0]
    watt_seconds, grams, dollars = (_sum(entries, name) for name in ("watt_seconds", "carbon_grams", "cost_usd"))
    if watt_seconds is not None and grams is not None:
        telemetry.metrics.count("event_worker_energy_ws", watt_seconds, method=method)
        telemetry.metrics.count("event_worker_carbon_g", grams, method=method)
        telemetry.metrics.count("energy_kwh", watt_seconds / 3_600_000, dataset=first.dataset or "", method=method)
        telemetry.metrics.count("co2e_kg", grams / 1000, dataset=first.dataset or "", method=method)
    if dollars is not None:
        telemetry.metrics.count("cost_usd", dollars, dataset=first.dataset or "")
    common: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(),
        "run_id": first.run_id,
        "dataset": first.dataset,
        "stage": stage,
        "keys": sum(entry.key is not None for entry in entries),
        "replay_id": first.replay,
        "method": method,
        "energy_kwh": None if watt_seconds is None else watt_seconds / 3_600_000,
    }
    usage = reduce(add, (entry.usage for entry in entries))
    telemetry.records.write("energy-v2", {**common, **_usage_fields(usage), "energy_ws": watt_seconds, "cost_usd": dollars,
                                         "coefficients": coefficients_digest(services)})  # fmt: skip
    grid = coefficients_of(services).grid
    telemetry.records.write(
        "carbon-v2",
        {
            **common,
            "carbon_g": grams,
            "co2e_kg": None if grams is None else grams / 1000,
            "grid": {"value": grid.value, "unit": grid.unit, "source": grid.source, "year": grid.year,
                     "region": grid.region},
        },
    )  # fmt: skip


def _usage_fields(usage: Usage) -> dict[str, Any]:
    return {
        "wall_seconds": usage.wall_seconds,
        "cpu_seconds": usage.cpu_seconds,
        "gigabyte_seconds": usage.gigabyte_seconds,
        "bytes_read": usage.bytes_read,
        "bytes_written": usage.bytes_written,
    }


def _sum(entries: Sequence[EnergyEntry], name: str) -> float | None:
    """None as soon as one is not known, which with one method is all or none."""
    values = [getattr(entry.energy, name) for entry in entries]
    return None if any(value is None for value in values) else float(sum(values))


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A stage of an attempt at a key; without an epoch, of a try without a claim; without a key, of a whole run."""

    stage: str
    key: str | None = None
    epoch: int | None = None


def record_usage(
    services: Services, run_id: str, usages: Mapping[WorkUnit, Usage], *, dataset: str | None, replay: str | None = None
) -> list[EnergyEntry]:
    """Enter what was used; the entries, for whoever tells of them. The work is done, so one that cannot be entered is
    told of and stops nothing."""
    if not usages:
        return []
    with best_effort(services.telemetry, "what work cost", "energy"):
        entries = [
            EnergyEntry(run_id, work.stage, usage, energy_of(services, usage), dataset, work.key, work.epoch, replay)
            for work, usage in usages.items()
        ]
        record_entries(services.database, entries, coefficients_digest(services))
        return entries
    return []


def record_lost_costs(services: Services, dataset: str, key: str) -> None:
    """Of a key whose last run may have died: that it cost something, and nobody knows how much."""
    with best_effort(services.telemetry, "that a run died", "energy"):
        record_lost_stages(services.database, key, dataset, coefficients_digest(services))
