"""The energy ledger by dataset and month, as values and as the rows of a table."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from kfm_pipelines.energy.estimate import Coefficients, Energy, Method, sum_if_known
from kfm_pipelines.energy.ledger import coefficients_used, monthly_totals
from kfm_pipelines.services import Services
from kfm_pipelines.state.audit import load_snapshot

METHODS: tuple[Method, ...] = ("measured", "estimated", "unknown")
NO_DATASET = "(receiving messages)"
USAGE_LABELS = {"cpu_seconds": "processor time", "gigabyte_seconds": "memory", "network_bytes": "traffic"}
COLUMNS = ("dataset", "month", "method", "runs", "keys", "kWh", "kg CO2e", "USD", "published nothing")
TEXT_COLUMNS = frozenset(COLUMNS[:3])
NOTES: dict[Method, str] = {
    "measured": "Measured energy is that of the whole machine, including other work, without memory and cooling.",
    "estimated": "Estimated energy is derived from time, memory and traffic with published averages. Carbon and cost "
    "are always estimated.",
    "unknown": "Unknown is not zero: the processor time could not be read.",
}


@dataclass(frozen=True, slots=True)
class ReportLine:
    """The cost of one dataset in one month by one method, or the total of a method."""

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

    def as_cells(self) -> tuple[str, ...]:
        energy = self.energy
        return (
            self.dataset,
            f"{self.month:%Y-%m}" if self.month else "",
            energy.method,
            "" if self.runs is None else f"{self.runs:,}",
            "" if self.keys is None else f"{self.keys:,}",
            format_number(energy.energy_kwh),
            format_number(energy.co2e_kg),
            format_number(energy.cost_usd),
            "unknown" if self.wasted_share is None else f"{100 * self.wasted_share:.0f} %",
        )


@dataclass(frozen=True, slots=True)
class EnergyReport:
    lines: tuple[ReportLine, ...]
    coefficients: tuple[Coefficients, ...]  # all that were used, earliest first

    @property
    def methods(self) -> tuple[Method, ...]:
        return tuple(method for method in METHODS if any(line.energy.method == method for line in self.lines))

    @property
    def totals(self) -> tuple[ReportLine, ...]:
        """One per method; methods are not added up."""
        return tuple(
            _total(method, [one for one in self.lines if one.energy.method == method]) for method in self.methods
        )

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(
                f"{name.replace('_', ' ')}: {one.value:g} {one.unit} ({one.source}, {one.year}, {one.region})"
                for coefficients in self.coefficients
                for name, one in ((name, getattr(coefficients, name)) for name in Coefficients.model_fields)
            )
        )

    @property
    def notes(self) -> list[str]:
        estimated = [line for line in self.lines if line.energy.method == "estimated"]
        missing = " and ".join(dict.fromkeys(part for line in estimated for part in line.missing))
        left_out = [f"Some estimates leave out {missing}, which could not be read."] if missing else []
        return [NOTES[method] for method in self.methods] + left_out

    def as_document(self) -> dict[str, Any]:
        return {
            "lines": [line.as_document() for line in self.lines],
            "coefficients": [one.model_dump(mode="json") for one in self.coefficients],
        }


def energy_report(services: Services, dataset: str | None, start: date | None, end: date | None) -> EnergyReport:
    """Reports all datasets or one, which need not be declared any more, from the month of `start` to before `end`."""
    totals = monthly_totals(services.database, dataset, start, end)
    if dataset is not None and not totals:
        _ = services.datasets[dataset]  # raises for a dataset that never existed
    used = coefficients_used(services.database, dataset, start, end)
    coefficients = [Coefficients.model_validate(load_snapshot(services.database, digest)) for digest in used]
    lines = []
    for one in totals:
        missing = () if one.total.energy.method == "measured" else one.total.usage.missing
        labels = tuple(USAGE_LABELS[name] for name in missing)
        name, energy = one.dataset or NO_DATASET, one.total.energy
        lines.append(ReportLine(name, one.month, one.runs, one.keys, one.wasted_share, energy, labels))
    return EnergyReport(tuple(lines), tuple(coefficients))


def _total(method: Method, lines: list[ReportLine]) -> ReportLine:
    costs = ("watt_seconds", "carbon_grams", "cost_usd")
    energy = Energy(method, *(sum_if_known(getattr(line.energy, name) for line in lines) for name in costs))
    wasted = sum_if_known(
        None if line.wasted_share is None else line.wasted_share * (line.energy.watt_seconds or 0) for line in lines
    )
    share = wasted / energy.watt_seconds if wasted is not None and energy.watt_seconds else None
    missing = tuple(dict.fromkeys(part for line in lines for part in line.missing))
    return ReportLine("all", None, None, None, share, energy, missing)


def format_number(value: float | None) -> str:
    """Formats with three significant digits and without an exponent."""
    if value is None:
        return "unknown"
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    exponent = int(f"{abs(rounded):e}".partition("e")[2])
    return f"{rounded:,.{max(0, 2 - exponent)}f}"
