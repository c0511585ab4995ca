"""Energy by dataset and month as a picture. Pure: values in, bytes out.

A panel for each dataset, a bar for each month and method: measured and estimated stand beside each other, never on top
of each other. What published nothing is hatched; what is unknown has a question mark in place of a bar.
"""

from collections.abc import Sequence
from datetime import date
from io import BytesIO
from math import ceil
from typing import TYPE_CHECKING, Any

from kfm_pipelines.energy.estimate import Method
from kfm_pipelines.energy.report.report import EnergyReport, ReportLine
from kfm_pipelines.energy.report.table import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1d2733", "#4b5866", "#d5dbe1"
# Told apart by everybody, and on grey paper by how dark they are.
COLOURS: dict[Method, str] = {"measured": "#004d80", "estimated": "#e69f00"}
HATCH = "////"
RC_PARAMS: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same on every machine
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "hatch.linewidth": 0.7,
    "text.parse_math": False,  # a name may have any characters
}
# In inches.
PANEL_SIZE, SINGLE_PANEL_SIZE = (4.4, 2.4), (8.8, 3.6)
HEADER_HEIGHT, FOOTER_HEIGHT = 0.7, 0.4
MAX_NUMBERED_BARS = 9  # so many bars have room for their numbers
MAX_LABELLED_MONTHS = 8  # so many months have room for their names
MAX_NAME_LENGTH = 44
UNITS = (("kWh", 3_600_000.0), ("Wh", 3600.0), ("Ws", 1.0))


def draw_chart(report: EnergyReport) -> bytes:
    """A PNG of a report that has lines."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    datasets = list(dict.fromkeys(line.dataset for line in report.lines))
    columns = min(len(datasets), 2 if len(datasets) <= 4 else 3)
    rows = ceil(len(datasets) / columns)
    wide, tall = SINGLE_PANEL_SIZE if len(datasets) == 1 else PANEL_SIZE
    height = tall * rows + HEADER_HEIGHT + FOOTER_HEIGHT
    room = ConstrainedLayoutEngine(
        rect=(0.005, FOOTER_HEIGHT / height, 0.99, 1 - (HEADER_HEIGHT + FOOTER_HEIGHT) / height)
    )
    with rc_context(RC_PARAMS):
        figure = Figure(figsize=(wide * columns, height), facecolor="white", layout=room)
        FigureCanvasAgg(figure)
        months = _months(report.lines)
        for place, dataset in enumerate(datasets):
            lines = [line for line in report.lines if line.dataset == dataset]
            axes = figure.add_subplot(rows, columns, place + 1)
            _draw_panel(axes, dataset, lines, months)
            if place + columns >= len(datasets):  # nothing is below it
                axes.set_xlabel("month, UTC")
        _write_title(figure, report, several=len(datasets) > 1)
        _draw_legend(figure, report)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
    return buffer.getvalue()


def _draw_panel(axes: "Axes", dataset: str, lines: Sequence[ReportLine], months: Sequence[date]) -> None:
    totals = EnergyReport(tuple(lines), ()).totals
    methods = [one.energy.method for one in totals]
    unit, size = _unit(lines)
    bar = 0.7 / len(methods)
    numbered = len(months) * len(methods) <= MAX_NUMBERED_BARS
    for line in lines:
        place = _slot(line, months) + (methods.index(line.energy.method) - (len(methods) - 1) / 2) * bar
        if line.energy.watt_seconds is None:
            _write_above(axes, "?", place, 0, weight="bold")
            continue
        value = line.energy.watt_seconds / size
        _draw_bar(axes, place, min(0.92 * bar, 0.5), value, line)
        if numbered:
            _write_above(axes, format_number(value), place, value)
    _format_axes(axes, months, unit)
    _write_heading(axes, dataset, totals)


def _slot(line: ReportLine, months: Sequence[date]) -> int:
    return months.index(line.month) if line.month else 0


def _write_above(axes: "Axes", text: str, place: float, value: float, weight: str = "normal") -> None:
    axes.annotate(text, (place, value), (0, 2), textcoords="offset points", ha="center", size=7.5, weight=weight)


def _draw_bar(axes: "Axes", place: float, width: float, value: float, line: ReportLine) -> None:
    """What published nothing is at the bottom, where shares can be compared."""
    nothing = value * (line.wasted_share or 0.0)
    colour = COLOURS[line.energy.method]
    axes.bar(place, nothing, width, color="white", edgecolor=colour, hatch=HATCH, linewidth=0.8, zorder=2)
    axes.bar(place, value - nothing, width, bottom=nothing, color=colour, edgecolor=colour, linewidth=0.8, zorder=2)


def _format_axes(axes: "Axes", months: Sequence[date], unit: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    every = ceil(len(months) / MAX_LABELLED_MONTHS)
    shown = range(0, len(months), every)
    axes.set_xticks(list(shown), [f"{months[place]:%b}\n{months[place]:%Y}" for place in shown])
    axes.set_xlim(min(-0.6, len(months) / 2 - 2), max(len(months) - 0.4, len(months) / 2 + 1))
    axes.set_ylim(0, max(axes.get_ylim()[1], 1e-9) * 1.08)
    axes.set_ylabel(f"energy, {unit}")
    axes.yaxis.set_major_locator(MaxNLocator(4) if axes.patches else FixedLocator([0]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.grid(axis="y", color=GRID, linewidth=0.6, zorder=0)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)


def _write_heading(axes: "Axes", dataset: str, totals: Sequence[ReportLine]) -> None:
    """With what it comes to, by each method: the scales of panels differ."""
    told = "\n".join(_format_amount(one) for one in totals)
    axes.set_title(told, loc="left", size=8, color=MUTED)
    above = 7 + 10 * len(totals)  # points: the lines below it
    axes.annotate(
        _shorten(dataset), (0, 1), (0, above), xycoords="axes fraction", textcoords="offset points", weight="bold",
    )  # fmt: skip


def _format_amount(line: ReportLine) -> str:
    energy = line.energy
    if energy.watt_seconds is None:
        return "unknown in part"
    unit, size = _unit([line])
    return f"{energy.method} {format_number(energy.watt_seconds / size)} {unit}, {format_number(energy.carbon_grams)} g CO2e"


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def _write_title(figure: "Figure", report: EnergyReport, *, several: bool) -> None:
    known = [method for method in report.methods if method != "unknown"]
    kind = " and ".join(known) or "unknown"
    figure.text(0.01, 1 - 0.12 / figure.get_figheight(), f"Energy by dataset and month, {kind}", va="top", size=12)
    said = ["carbon is estimated"]
    said += ["? is unknown"] if "unknown" in report.methods else []
    said += ["each panel has a scale of its own"] if several else []
    said += ["measured and estimated are not added up"] if len(known) > 1 else []
    figure.text(0.01, 1 - 0.42 / figure.get_figheight(), "; ".join(said), va="top", size=8.5, color=MUTED)


def _draw_legend(figure: "Figure", report: EnergyReport) -> None:
    from matplotlib.artist import Artist
    from matplotlib.patches import Patch

    keys: list[Artist] = []
    for method, colour in COLOURS.items():
        if method in report.methods:
            keys.append(Patch(facecolor=colour, edgecolor=colour, label=f"{method}, published"))
            keys.append(Patch(facecolor="white", edgecolor=colour, hatch=HATCH, label=f"{method}, published nothing"))
    figure.legend(handles=keys, loc="lower left", bbox_to_anchor=(0.005, 0.0), ncols=4, frameon=False)


def _months(lines: Sequence[ReportLine]) -> list[date]:
    """All of them from the first to the last: one without entries is a gap."""
    known = sorted(line.month for line in lines if line.month)
    months = [known[0]]
    while months[-1] < known[-1]:
        last = months[-1]
        months.append(date(last.year + last.month // 12, last.month % 12 + 1, 1))
    return months


def _unit(lines: Sequence[ReportLine]) -> tuple[str, float]:
    """The largest in which the most is at least one."""
    most = max((line.energy.watt_seconds or 0.0 for line in lines), default=0.0)
    return next(((unit, size) for unit, size in UNITS if most >= size), UNITS[-1])
