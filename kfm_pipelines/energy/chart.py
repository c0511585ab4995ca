"""The energy report as a picture: waste is hatched, an unknown amount is a question mark. Pure."""

from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from kfm_pipelines.energy.estimate import Method
from kfm_pipelines.energy.report import EnergyReport, ReportLine, format_number

# Distinguishable with any colour vision, and in grey by their darkness.
COLOURS: dict[Method, str] = {"measured": "#004d80", "estimated": "#e69f00", "unknown": "#4b5866"}
HATCH = "////"
STYLE: Any = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so it is the same on every machine
    "font.size": 8.5,
    "hatch.linewidth": 0.7,
    "text.parse_math": False,  # names may contain any character
}
MAX_NAME_LENGTH = 44
UNITS = (("kWh", 3_600_000.0), ("Wh", 3600.0), ("Ws", 1.0))


def draw_chart(report: EnergyReport) -> bytes:
    with rc_context(STYLE):
        figure = Figure(figsize=(8.8, 1.6 + 0.28 * len(report.lines)), facecolor="white", layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        # The largest unit in which the largest value is at least one.
        largest = max((line.energy.watt_seconds or 0.0 for line in report.lines), default=0.0)
        unit, size = next(((unit, size) for unit, size in UNITS if largest >= size), UNITS[-1])
        for row, line in enumerate(report.lines):
            _draw_bar(axes, row, line, size)
        axes.set_yticks(range(len(report.lines)), [_label(line) for line in report.lines])
        axes.set(xlabel=f"energy, {unit}", title="Energy by dataset and month, UTC; carbon is estimated")
        axes.set_ylim(len(report.lines) - 0.5, -0.5)
        axes.margins(x=0.12)
        axes.spines[["top", "right"]].set_visible(False)
        _draw_legend(axes, report)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
    return buffer.getvalue()


def _draw_bar(axes: Axes, row: int, line: ReportLine, size: float) -> None:
    colour = COLOURS[line.energy.method]
    if line.energy.watt_seconds is None:
        axes.annotate("?", (0, row), (3, 0), textcoords="offset points", va="center", weight="bold", color=colour)
        return
    value = line.energy.watt_seconds / size
    wasted = value * (line.wasted_share or 0.0)
    axes.barh(row, wasted, color="white", edgecolor=colour, hatch=HATCH, linewidth=0.8)
    axes.barh(row, value - wasted, left=wasted, color=colour, edgecolor=colour, linewidth=0.8)
    text = f"{format_number(value)}; {format_number(line.energy.carbon_grams)} g CO2e"
    axes.annotate(text, (value, row), (3, 0), textcoords="offset points", va="center", size=7.5)


def _label(line: ReportLine) -> str:
    name = line.dataset if len(line.dataset) <= MAX_NAME_LENGTH else f"{line.dataset[: MAX_NAME_LENGTH - 1]}…"
    return f"{name}  {line.month:%Y-%m}  {line.energy.method}" if line.month else name


def _draw_legend(axes: Axes, report: EnergyReport) -> None:
    handles: list[Artist] = []
    for method in (method for method in report.methods if method != "unknown"):
        colour = COLOURS[method]
        handles.append(Patch(facecolor=colour, edgecolor=colour, label=f"{method}, published"))
        handles.append(Patch(facecolor="white", edgecolor=colour, hatch=HATCH, label=f"{method}, published nothing"))
    if handles:
        axes.figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False)
