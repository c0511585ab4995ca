"""Released cells on a map: their outlines, shades and labels."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import h3
import numpy as np
from numpy.typing import NDArray

from kfm_pipelines.care.review.page.places import CellCount

# One hue from light to dark, readable in grey and with any colour vision.
SHADES = ("#dbe7f3", "#b3cfe6", "#7fb0d6", "#3b76ab", "#1b4f86")
DARK_SHADES = SHADES[-2:]
MAX_LABELS = 500


@dataclass(frozen=True, eq=False)
class Hexagon:
    records: int
    resolution: int
    corners: NDArray[np.float64]  # longitude, latitude
    centre: tuple[float, float]


@dataclass(frozen=True)
class CellLabel:
    text: str
    x: float
    y: float
    records: int


def build_hexagons(cells: Iterable[CellCount]) -> list[Hexagon]:
    """Returns coarse cells first, so that finer ones lie on top. Invalid cells are left out."""
    drawn = [_build_hexagon(cell) for cell in cells if h3.is_valid_cell(cell.cell)]
    return sorted(drawn, key=lambda hexagon: (hexagon.resolution, hexagon.centre))


def _build_hexagon(cell_count: CellCount) -> Hexagon:
    latitude, longitude = h3.cell_to_latlng(cell_count.cell)
    corners = np.array(h3.cell_to_boundary(cell_count.cell))[:, ::-1]
    # Corners beyond the antimeridian stay on the side of the centre; otherwise the outline would span the world.
    corners[:, 0] = longitude + (corners[:, 0] - longitude + 180) % 360 - 180
    return Hexagon(cell_count.records, h3.get_resolution(cell_count.cell), corners, (longitude, latitude))


def shade_edges(counts: Sequence[int]) -> list[int]:
    """Returns the lowest count of each shade, in round numbers."""
    if not counts:
        return []
    least, most = min(counts), max(counts)
    series = [factor * 10**power for power in range(len(str(most)) + 1) for factor in (1, 2, 5)]
    for candidates in (series, series[::3], series[::6]):
        first = max((step for step in candidates if step <= least), default=0)
        found = [first, *(step for step in candidates if first < step <= most)]
        if len(found) <= len(SHADES):
            return found
    return found[: len(SHADES)]


def edge_labels(edges: Sequence[int]) -> list[str]:
    closed = [f"{low:,}" if high - low == 1 else f"{low:,}–{high - 1:,}" for low, high in pairwise(edges)]
    return [*closed, *(f"{edge:,} or more" for edge in edges[-1:])]


def shades(edges: Sequence[int]) -> tuple[str, ...]:
    """Returns one shade per step, as distinct as possible."""
    return {0: (), 1: SHADES[2:3], 2: SHADES[1::2], 3: SHADES[::2], 4: SHADES[1:]}.get(len(edges), SHADES)


def shade_of(records: int, edges: Sequence[int]) -> str:
    return shades(edges)[max(bisect_right(edges, records) - 1, 0)]


def place_labels(drawn: Sequence[Hexagon], layout: "LabelLayout") -> list[CellLabel]:
    """Returns the counts that fit into their cell without covering a finer cell or another label."""
    taken: list[tuple[float, float, float, float]] = []
    fitting: list[CellLabel] = []
    centres = np.array([hexagon.centre for hexagon in drawn]).reshape(-1, 2)
    reach = np.array([np.ptp(hexagon.corners, axis=0) / 2 for hexagon in drawn]).reshape(-1, 2)
    finer_than = np.array([hexagon.resolution for hexagon in drawn])
    for hexagon in reversed(drawn):
        if len(fitting) == MAX_LABELS:
            break
        text = f"{hexagon.records:,}"
        half = len(text) * layout.character_width / 2, layout.height / 2
        covering = finer_than > hexagon.resolution
        spot = next(
            (
                spot
                for spot in _label_positions(hexagon, half)
                if layout.contains(spot, half)
                and not _overlaps(spot, half, centres[covering], 0.85 * reach[covering])
                and not _overlaps(spot, half, *np.hsplit(np.array(taken).reshape(-1, 4), 2))
            ),
            None,
        )
        if spot is not None:
            taken.append((*spot, *half))
            fitting.append(CellLabel(text, *spot, hexagon.records))
    return fitting


@dataclass(frozen=True)
class LabelLayout:
    """The size of a label and the area for labels, in degrees."""

    character_width: float
    height: float
    lower_left: tuple[float, float]
    upper_right: tuple[float, float]

    def contains(self, spot: tuple[float, float], half: tuple[float, float]) -> bool:
        return all(
            low + reach <= place <= high - reach
            for low, place, high, reach in zip(self.lower_left, spot, self.upper_right, half, strict=True)
        )


def _label_positions(hexagon: Hexagon, half: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Yields the centre, then positions towards each corner; nothing when the label is too large for the cell."""
    extent = np.ptp(hexagon.corners, axis=0) / 2
    if half[0] > 0.75 * extent[0] or half[1] > 0.6 * extent[1]:
        return
    yield hexagon.centre
    for longitude, latitude in np.array(hexagon.centre) * 0.4 + hexagon.corners * 0.6:
        yield float(longitude), float(latitude)


def _overlaps(
    spot: tuple[float, float], half: tuple[float, float], centres: NDArray[np.float64], halves: NDArray[np.float64]
) -> bool:
    return bool((np.abs(centres - np.array(spot)) < halves + np.array(half)).all(axis=1).any())
