"""Draws a map as a PNG, laid out for the width of a phone; the same places give the same bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from math import ceil, cos, radians

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import EllipseCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MultipleLocator

from kfm_pipelines.care.review.page import hexagons, legend
from kfm_pipelines.care.review.page.legend import EDGE, INK, LEFT, LINE, MUTED, RIGHT, ROW, STYLE, TICKS, TOP, WIDTH
from kfm_pipelines.care.review.page.places import MapPlaces, Points
from kfm_pipelines.declarations import Extent
from kfm_pipelines.text import truncate_line

METRES_PER_DEGREE = 111_195.0


@dataclass(frozen=True)
class _Viewport:
    """The area of the map: the frame with a margin, to scale."""

    west: float
    south: float
    east: float
    north: float
    height: float

    @property
    def metres_per_pixel(self) -> float:
        return (self.north - self.south) * METRES_PER_DEGREE / self.height

    @property
    def label_layout(self) -> hexagons.LabelLayout:
        across, up = (self.east - self.west) / (WIDTH - LEFT - RIGHT), (self.north - self.south) / self.height
        return hexagons.LabelLayout(6.2 * across, 9.5 * up, (self.west, self.south), (self.east, self.north))


def draw_map(
    places: MapPlaces, frame: Extent, *, title: str, outline: Sequence[tuple[float, float]] = (), width_px: int = 1152
) -> bytes:
    buffer = BytesIO()
    with rc_context(STYLE):
        figure = _draw_figure(places, frame, title, outline)
        figure.savefig(buffer, format="png", dpi=width_px * 96 / WIDTH, metadata={"Software": None})
    return buffer.getvalue()


def _draw_figure(places: MapPlaces, frame: Extent, title: str, outline: Sequence[tuple[float, float]]) -> Figure:
    viewport = _viewport(frame)
    drawn = hexagons.build_hexagons(places.cells)
    entries = legend.legend_entries(places, drawn)
    notes = legend.map_notes(places, frame, len(drawn))
    rows = ceil(len(entries) / legend.column_count(entries))
    height = TOP + viewport.height + TICKS + ROW * (rows + max(len(notes), 1)) + 6
    figure = Figure(figsize=(WIDTH / 96, height / 96), facecolor="white")
    FigureCanvasAgg(figure)
    left, bottom = LEFT / WIDTH, 1 - (TOP + viewport.height) / height
    axes = figure.add_axes((left, bottom, (WIDTH - LEFT - RIGHT) / WIDTH, viewport.height / height))
    _draw_frame(axes, viewport, outline)
    _draw_cells(axes, drawn, viewport)
    for index, points in enumerate(places.points):
        _draw_points(axes, points, index)
    if places.is_empty:
        axes.text(
            0.5, 0.5, "No place is shown", transform=axes.transAxes, ha="center", va="center", fontsize=10, color=INK,
            zorder=9, bbox={"facecolor": "white", "edgecolor": LINE, "boxstyle": "round,pad=0.6"},
        )  # fmt: skip
    text = truncate_line(title, 52)
    figure.text(LEFT / WIDTH, 1 - 16 / height, text, fontsize=8.5, fontweight="bold", color=INK)
    _draw_scale(figure, viewport, height)
    below = height - TOP - viewport.height - TICKS
    legend.write_notes(figure, notes, below)
    legend.draw_legend(figure, entries, below - ROW * max(len(notes), 1) - 2)
    return figure


def _viewport(frame: Extent) -> _Viewport:
    margin = 0.02 * max(frame.east - frame.west, frame.north - frame.south)
    west, east = frame.west - margin, frame.east + margin
    south, north = max(frame.south - margin, -90.0), min(frame.north + margin, 90.0)
    narrowing = max(cos(radians((south + north) / 2)), 0.05)
    width = WIDTH - LEFT - RIGHT
    height = width * (north - south) / ((east - west) * narrowing)
    held = min(max(height, 120.0), 460.0)
    if height < held:
        more = (north - south) * (held / height - 1) / 2
        south, north = south - more, north + more
    if height > held:
        more = (east - west) * (height / held - 1) / 2
        west, east = west - more, east + more
    return _Viewport(west, south, east, north, held)


def _draw_frame(axes: Axes, viewport: _Viewport, outline: Sequence[tuple[float, float]]) -> None:
    axes.set(xlim=(viewport.west, viewport.east), ylim=(viewport.south, viewport.north), facecolor="#fbfcfd")
    step = _round_number((viewport.east - viewport.west) / 4)
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.yaxis.set_major_locator(MultipleLocator(step if step < (viewport.north - viewport.south) / 2 else step / 2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _format_degrees(value, "E", "W")))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _format_degrees(value, "N", "S")))
    axes.grid(color=LINE, linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=3, labelsize=7, labelcolor=MUTED)
    if step < 1:
        axes.tick_params(axis="y", labelrotation=90)  # too many digits for the margin
    for spine in axes.spines.values():
        spine.set(color="#9aa5b1", linewidth=0.6)
    if outline:
        xs, ys = zip(*outline, strict=True)
        axes.fill(xs, ys, facecolor="#f2f1ec", edgecolor="none", zorder=0.4)
        axes.plot(xs, ys, color="#6b7683", linewidth=0.9, zorder=5)


def _format_degrees(value: float, positive: str, negative: str) -> str:
    side = positive if value > 0 else negative if value < 0 else ""
    return f"{abs(round(value, 6)):g}°{side}"


def _round_number(largest: float) -> float:
    """Returns the largest of 1, 2, 5, 10, … (or their tenths) that does not exceed this."""
    series = [factor * 10.0**power for power in range(-6, 9) for factor in (1, 2, 5)]
    return max((number for number in series if number <= largest), default=series[0])


def _draw_cells(axes: Axes, drawn: Sequence[hexagons.Hexagon], viewport: _Viewport) -> None:
    edges = hexagons.shade_edges([hexagon.records for hexagon in drawn])
    for resolution, group in groupby(drawn, key=lambda hexagon: hexagon.resolution):
        same_size = list(group)
        corners = [hexagon.corners for hexagon in same_size]
        faces = [hexagons.shade_of(hexagon.records, edges) for hexagon in same_size]
        # A white rim separates a small cell from a large one of the same shade.
        rim = PolyCollection(
            corners, facecolors="white", edgecolors="white", linewidths=2.2, zorder=2 + resolution / 20
        )
        cells = PolyCollection(corners, facecolors=faces, edgecolors=EDGE, linewidths=0.7, zorder=2 + resolution / 20)
        axes.add_collection(rim, autolim=False)
        axes.add_collection(cells, autolim=False)
    for label in hexagons.place_labels(drawn, viewport.label_layout):
        colour = "white" if hexagons.shade_of(label.records, edges) in hexagons.DARK_SHADES else INK
        axes.text(
            label.x, label.y, label.text, color=colour, fontsize=7, fontweight="bold",
            ha="center", va="center", clip_on=True, zorder=4,
        )  # fmt: skip


def _draw_points(axes: Axes, points: Points, index: int) -> None:
    style = legend.point_style(points.name, index)
    if 0 < len(points) <= legend.MAX_CIRCLES:
        _draw_circles(axes, points, style.line)
    few = len(points) <= 5_000
    axes.plot(
        points.longitude,
        points.latitude,
        linestyle="none",
        marker=style.marker,
        markersize=4.2 if len(points) <= 500 else 3.0 if few else 0.8,
        markerfacecolor=style.colour,
        markeredgecolor=style.rim if few else "none",
        markeredgewidth=0.4 if few else 0.0,
        scalex=False,
        scaley=False,
        zorder=6 + 0.01 * index,
    )


def _draw_circles(axes: Axes, points: Points, colour: str) -> None:
    drawn = np.nan_to_num(points.uncertainty_m) > 0
    if not drawn.any():
        return
    high = 2 * points.uncertainty_m[drawn] / METRES_PER_DEGREE
    wide = high / np.maximum(np.cos(np.radians(points.latitude[drawn])), 0.05)
    axes.add_collection(
        EllipseCollection(
            wide, high, np.zeros(len(high)), units="xy",
            offsets=np.column_stack([points.longitude[drawn], points.latitude[drawn]]),
            offset_transform=axes.transData, facecolor="none", edgecolor=colour, linewidth=0.6, alpha=0.8, zorder=5.5,
        ),
        autolim=False,
    )  # fmt: skip


def _draw_scale(figure: Figure, viewport: _Viewport, height: float) -> None:
    """Draws a bar of a round length, to scale at the centre of the map."""
    metres = _round_number(90 * viewport.metres_per_pixel)
    length = metres / viewport.metres_per_pixel
    right, middle = WIDTH - RIGHT, TOP + viewport.height + TICKS + ROW / 2
    ends, y = ((right - length) / WIDTH, right / WIDTH), 1 - middle / height
    figure.add_artist(Line2D(ends, (y, y), color=INK, linewidth=1.6, marker="|", markersize=5, solid_capstyle="butt"))
    name = f"{metres / 1000:,g} km" if metres >= 1000 else f"{metres:g} m"
    figure.text(ends[0] - 6 / WIDTH, y, name, ha="right", va="center", fontsize=7, color=INK)
