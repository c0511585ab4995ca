"""The legend and notes below a map, and the sizes (in CSS pixels), colours and font that all parts share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kfm_pipelines.care.review.page import hexagons
from kfm_pipelines.care.review.page.places import MapPlaces, Points
from kfm_pipelines.declarations import Extent
from kfm_pipelines.text import truncate_line

MAX_CIRCLES = 2_000
WIDTH = 384.0
LEFT, RIGHT, TOP, TICKS, ROW = 32.0, 10.0, 24.0, 16.0, 15.0
INK, MUTED, LINE, EDGE = "#1d2733", "#4b5866", "#d5dbe1", "#123a66"
STYLE: Any = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so it is the same on every machine
    "text.parse_math": False,  # names may contain any character
}


@dataclass(frozen=True)
class PointStyle:
    """A light colour gets a dark rim and dark lines, to be visible on paper."""

    colour: str
    marker: str
    rim: str = "white"

    @property
    def line(self) -> str:
        return self.colour if self.rim == "white" else self.rim


# Classes differ in shape as well as colour.
_STYLES = {
    "open": PointStyle("#00805c", "s"),
    "generalised": PointStyle("#e69f00", "o", rim="#5e4100"),
    "restricted": PointStyle("#b8450a", "^"),
    "withheld": PointStyle("#5b2a86", "D"),
}
_OTHER_STYLES = (PointStyle(INK, "o"), *_STYLES.values())


def point_style(name: str, index: int) -> PointStyle:
    return _STYLES.get(name) or _OTHER_STYLES[index % len(_OTHER_STYLES)]


def legend_entries(places: MapPlaces, drawn: Sequence[hexagons.Hexagon]) -> list[tuple[Artist, str]]:
    edges = hexagons.shade_edges([hexagon.records for hexagon in drawn])
    keys: list[tuple[Artist, str]] = [
        (Patch(facecolor=shade, edgecolor=EDGE, linewidth=0.5), f"{name} records")
        for shade, name in zip(hexagons.shades(edges), hexagons.edge_labels(edges), strict=True)
    ]
    for index, points in enumerate(places.points):
        style = point_style(points.name, index)
        dot = Line2D([], [], color=style.colour, marker=style.marker, markersize=4.5, linestyle="none")
        dot.set(markeredgecolor=style.line, markeredgewidth=0.5)
        keys.append((dot, f"{truncate_line(points.name, 13)} ({len(points):,})"))
    circled = [points.uncertainty_m for points in places.points if len(points) <= MAX_CIRCLES]
    if any((np.nan_to_num(metres) > 0).any() for metres in circled):
        ring = Line2D([], [], color=MUTED, marker="o", markersize=6, markerfacecolor="none", linestyle="none")
        keys.append((ring, "uncertainty"))
    return keys


def column_count(entries: Sequence[tuple[Artist, str]]) -> int:
    return 3 if all(len(name) <= 18 for _, name in entries) else 2


def map_notes(places: MapPlaces, frame: Extent, cells_drawn: int) -> list[str]:
    outside = sum(_count_outside(points, frame) for points in places.points)
    uncircled = any(len(points) > MAX_CIRCLES for points in places.points)
    notes = [
        (places.without_place, f"Not on the map: {places.without_place:,} without a place"),
        (outside, f"Outside the frame: {outside:,}"),
        (len(places.cells) - cells_drawn, f"Not an H3 cell: {len(places.cells) - cells_drawn:,}"),
        (uncircled, "Too many points to draw their uncertainty"),
    ]
    return [note for applies, note in notes if applies]


def _count_outside(points: Points, frame: Extent) -> int:
    inside = (points.longitude >= frame.west) & (points.longitude <= frame.east)
    inside &= (points.latitude >= frame.south) & (points.latitude <= frame.north)
    return int((~inside).sum())


def write_notes(figure: Figure, notes: Sequence[str], top: float) -> None:
    height = figure.get_figheight() * 96
    for index, note in enumerate(notes):
        y = (top - ROW * (index + 0.5)) / height
        figure.text(LEFT / WIDTH, y, note, va="center", fontsize=7, color=MUTED)


def draw_legend(figure: Figure, entries: Sequence[tuple[Artist, str]], top: float) -> None:
    if not entries:
        return
    figure.legend(
        [key for key, _ in entries], [name for _, name in entries], loc="upper left", ncols=column_count(entries),
        frameon=False,
        bbox_to_anchor=(LEFT / WIDTH, top / (figure.get_figheight() * 96)), borderpad=0, borderaxespad=0,
        labelspacing=0.55, handlelength=1.3, handleheight=0.9, handletextpad=0.5, columnspacing=1.2,
        fontsize=7, labelcolor=INK,
    )  # fmt: skip
