"""A report as rows of text: the same for a terminal and a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from kfm_pipelines.energy.report.report import EnergyReport, ReportLine


def format_number(value: float | None, digits: int = 3) -> str:
    """So many digits that count, and no powers of ten, however small it is."""
    if value is None:
        return "unknown"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    exponent = int(f"{abs(rounded):e}".partition("e")[2])
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"


def format_percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"


COLUMNS = ("dataset", "month", "method", "runs", "keys", "kWh", "kg CO2e", "USD", "published nothing")
TEXT_COLUMNS = frozenset(COLUMNS[:3])
MEASURED_NOTE = (
    "Measured is what counters of the whole machine said, whoever else worked on it; without memory and cooling."
)
ESTIMATED_NOTE = "Estimated follows from time, memory and traffic with published averages; carbon and cost always do."
UNKNOWN_NOTE = "Unknown is not nothing: processor time could not be read."


@dataclass(frozen=True, slots=True)
class ReportRow:
    cells: tuple[str, ...]
    total: bool = False


def rows_of(report: EnergyReport) -> list[ReportRow]:
    """A line each, and what each method comes to: there is no total of several."""
    rows = [_row(line) for line in report.lines]
    return rows if len(rows) == 1 else [*rows, *(_row(line, total=True) for line in report.totals)]


def notes_on(report: EnergyReport) -> list[str]:
    said = {"measured": MEASURED_NOTE, "estimated": ESTIMATED_NOTE, "unknown": UNKNOWN_NOTE}
    return [said[method] for method in report.methods] + _missing_notes(report.lines)


def _missing_notes(lines: Sequence[ReportLine]) -> list[str]:
    missing = dict.fromkeys(part for line in lines if line.energy.method == "estimated" for part in line.missing)
    return [f"In some estimates {' and '.join(missing)} could not be read and is not in them."] if missing else []


def _row(line: ReportLine, *, total: bool = False) -> ReportRow:
    energy = line.energy
    return ReportRow(
        (
            line.dataset,
            f"{line.month:%Y-%m}" if line.month else "",
            energy.method,
            "" if line.runs is None else f"{line.runs:,}",
            "" if line.keys is None else f"{line.keys:,}",
            format_number(energy.energy_kwh),
            format_number(energy.co2e_kg),
            format_number(energy.cost_usd),
            format_percent(line.wasted_share),
        ),
        total,
    )
