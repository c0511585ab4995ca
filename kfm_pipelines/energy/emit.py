"""Records costs in the ledger and emits them. Measured and estimated energy are never added up."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from kfm_pipelines.energy.estimate import Energy, coefficients_digest, coefficients_of, energy_of, sum_if_known
from kfm_pipelines.energy.ledger import EnergyEntry, record_entries, record_lost_stages
from kfm_pipelines.energy.meter import Meter, Usage
from kfm_pipelines.services import Services
from kfm_pipelines.telemetry.process import best_effort
from kfm_pipelines.telemetry.traces.spans import SpanValue, current_span_attributes

if TYPE_CHECKING:
    from opentelemetry.trace import Span

INPUTS, OUTPUTS = "kfm.lineage.inputs", "kfm.lineage.outputs"
# Attributes that the spans of parts repeat from the span of the whole.
INHERITED_ATTRIBUTES = ("kfm.pipeline", "kfm.key", "kfm.stage", "kfm.version", INPUTS)


def emit_costs(services: Services, entries: Sequence[EnergyEntry]) -> None:
    """Emits the costs of one run: one record per stage and method, for all keys together."""
    groups: dict[tuple[str, str], list[EnergyEntry]] = defaultdict(list)
    for entry in entries:
        groups[entry.stage, entry.energy.method].append(entry)
    for (stage, method), group in groups.items():
        _emit_stage_costs(services, stage, method, group)


def _emit_stage_costs(services: Services, stage: str, method: str, entries: Sequence[EnergyEntry]) -> None:
    telemetry, first = services.telemetry, entries[0]
    dataset = first.dataset or ""
    watt_seconds = sum_if_known(entry.energy.watt_seconds for entry in entries)
    grams = sum_if_known(entry.energy.carbon_grams for entry in entries)
    dollars = sum_if_known(entry.energy.cost_usd for entry in entries)
    if watt_seconds is not None and grams is not None:
        telemetry.metrics.count("event_worker_energy_ws", watt_seconds, method=method)
        telemetry.metrics.count("event_worker_carbon_g", grams, method=method)
        telemetry.metrics.count("energy_kwh", watt_seconds / 3_600_000, dataset=dataset, method=method)
        telemetry.metrics.count("co2e_kg", grams / 1000, dataset=dataset, method=method)
    if dollars is not None:
        telemetry.metrics.count("cost_usd", dollars, dataset=dataset)
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
    used = ("wall_seconds", "cpu_seconds", "gigabyte_seconds", "bytes_read", "bytes_written")
    energy = {"energy_ws": watt_seconds, "cost_usd": dollars, "coefficients": coefficients_digest(services)}
    telemetry.records.write("energy-v2", {**common, **{name: getattr(usage, name) for name in used}, **energy})
    grid = coefficients_of(services).grid.model_dump(include={"value", "unit", "source", "year", "region"})
    carbon = {"carbon_g": grams, "co2e_kg": None if grams is None else grams / 1000, "grid": grid}
    telemetry.records.write("carbon-v2", {**common, **carbon})


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A stage of an attempt at a key; without an epoch, of an unclaimed trial; without a key, of a whole run."""

    stage: str
    key: str | None = None
    epoch: int | None = None


def record_usage(
    services: Services, run_id: str, usages: Mapping[WorkUnit, Usage], *, dataset: str | None, replay: str | None = None
) -> list[EnergyEntry]:
    """Records what was used and returns the entries. A failure is logged and stops nothing: the work is done."""
    if not usages:
        return []
    with best_effort(services.telemetry, "the cost of work", "energy"):
        entries = [
            EnergyEntry(run_id, work.stage, usage, energy_of(services, usage), dataset, work.key, work.epoch, replay)
            for work, usage in usages.items()
        ]
        record_entries(services.database, entries, coefficients_digest(services))
        return entries
    return []


def record_lost_costs(services: Services, dataset: str, keys: Sequence[str]) -> None:
    """Records an unknown cost for the stages of keys whose last run may have died."""
    with best_effort(services.telemetry, "the cost of a run that died", "energy"):
        record_lost_stages(services.database, keys, dataset, coefficients_digest(services))


@contextmanager
def metered_span(services: Services, name: str, attributes: Mapping[str, SpanValue] | None = None) -> Iterator[None]:
    """Opens a span for a part of the current work, with the inherited attributes and its own cost."""
    meter = Meter()
    about = {**current_span_attributes(INHERITED_ATTRIBUTES), OUTPUTS: [], **(attributes or {})}
    with services.telemetry.spans.span(name, about) as span:
        try:
            yield
        finally:
            set_cost_attributes(span, energy_of(services, meter.read()))


def set_cost_attributes(span: "Span | None", energy: Energy) -> None:
    if span is not None:
        span.set_attributes(cost_attributes(energy))


def cost_attributes(energy: Energy) -> dict[str, str | float]:
    """Leaves out what is unknown."""
    costs = {"kfm.energy_kwh": energy.energy_kwh, "kfm.co2e_kg": energy.co2e_kg, "kfm.cost_usd": energy.cost_usd}
    known = {name: value for name, value in costs.items() if value is not None}
    return {"kfm.energy_method": energy.method, **known}
