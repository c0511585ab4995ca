"""The ledger of energy by dataset and month, and what it was estimated with."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

from kfm_pipelines.energy.estimate import Coefficients, Energy, Method
from kfm_pipelines.energy.ledger import MonthlyTotal, coefficients_used, monthly_totals
from kfm_pipelines.services import Services
from kfm_pipelines.state.config_snapshots import load_snapshot

METHODS: tuple[Method, ...] = ("measured", "estimated", "unknown")
NO_DATASET = "(taking messages)"  # of no dataset
USAGE_LABELS = {"cpu_seconds": "processor time", "gigabyte_seconds": "memory", "network_bytes": "traffic"}


@dataclass(frozen=True, slots=True)
class ReportLine:
    """What one dataset cost in one month by one method, or all of that method."""

    dataset: str
    month: date | None
    runs: int | None
    keys: int | None
    wasted_share: float | None
    energy: Energy
    missing: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        return {
            "dataset": None if self.dataset == NO_DATASET else self.dataset,
            "month": f"{self.month:%Y-%m}" if self.month else None,
            "method": self.energy.method,
            "runs": self.runs,
            "keys": self.keys,
            "energy_kwh": self.energy.energy_kwh,
            "co2e_kg_estimated": self.energy.co2e_kg,
            "cost_usd_estimated": self.energy.cost_usd,
            "share_for_nothing": self.wasted_share,
            "estimated_without": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class EnergyReport:
    lines: tuple[ReportLine, ...]
    coefficients: tuple[Coefficients, ...]  # all that were in force, the earliest first

    @property
    def methods(self) -> tuple[Method, ...]:
        return tuple(method for method in METHODS if any(line.energy.method == method for line in self.lines))

    @property
    def totals(self) -> tuple[ReportLine, ...]:
        """One for each method; there is none of all of them."""
        return tuple(
            _total(method, [one for one in self.lines if one.energy.method == method]) for method in self.methods
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Each number with where it comes from, once."""
        return tuple(dict.fromkeys(said for one in self.coefficients for said in _sources(one)))

    def as_document(self) -> dict[str, Any]:
        return {
            "lines": [line.as_document() for line in self.lines],
            "coefficients": [one.model_dump(mode="json") for one in self.coefficients],
        }


def energy_report(services: Services, dataset: str | None, start: date | None, end: date | None) -> EnergyReport:
    """Of all datasets or one, which need not be declared any more; from the month of `start` to before `end`."""
    spent = monthly_totals(services.database, dataset, start, end)
    if dataset is not None and not spent:
        _ = services.datasets[dataset]  # whoever asks for one that never was has mistyped it
    used = coefficients_used(services.database, dataset, start, end)
    return EnergyReport(
        tuple(_line(one) for one in spent),
        tuple(Coefficients.model_validate(load_snapshot(services.database, digest)) for digest in used),
    )


def _line(one: MonthlyTotal) -> ReportLine:
    estimated = one.total.energy.method != "measured"
    return ReportLine(
        dataset=one.dataset or NO_DATASET,
        month=one.month,
        runs=one.runs,
        keys=one.keys,
        wasted_share=one.wasted_share,
        energy=one.total.energy,
        missing=tuple(USAGE_LABELS[name] for name in one.total.usage.missing) if estimated else (),
    )


def _total(method: Method, lines: list[ReportLine]) -> ReportLine:
    energy = Energy(
        method,
        _sum(line.energy.watt_seconds for line in lines),
        _sum(line.energy.carbon_grams for line in lines),
        _sum(line.energy.cost_usd for line in lines),
    )
    wasted = _sum(
        None if line.wasted_share is None else line.wasted_share * (line.energy.watt_seconds or 0) for line in lines
    )
    share = wasted / energy.watt_seconds if wasted is not None and energy.watt_seconds else None
    return ReportLine(
        "all", None, None, None, share, energy, tuple(dict.fromkeys(m for line in lines for m in line.missing))
    )


def _sum(parts: Iterable[float | None]) -> float | None:
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)


def _sources(coefficients: Coefficients) -> list[str]:
    named = ((name, getattr(coefficients, name)) for name in Coefficients.model_fields)
    return [
        f"{name.replace('_', ' ')}: {one.value:g} {one.unit} ({one.source}, {one.year}, {one.region})"
        for name, one in named
    ]
