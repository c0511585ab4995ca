"""What a map shows, as values: cells with how many records they stand for, and points by class.

Does not belong here: drawing them (`maps`) or taking them from tables (`view`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Frame(Protocol):
    """A rectangle in degrees; a dataset's extent is one."""

    @property
    def west(self) -> float: ...
    @property
    def south(self) -> float: ...
    @property
    def east(self) -> float: ...
    @property
    def north(self) -> float: ...


@dataclass(frozen=True)
class CellCount:
    """An H3 cell, and how many records were released for it."""

    cell: str
    records: int


@dataclass(frozen=True, eq=False)
class Points:
    """Points of one class. The uncertainty is a radius; 0 or NaN when there is none to draw."""

    name: str
    longitude: "NDArray[np.float64]"
    latitude: "NDArray[np.float64]"
    uncertainty_m: "NDArray[np.float64]"

    def __len__(self) -> int:
        return len(self.longitude)


@dataclass(frozen=True, eq=False)
class MapPlaces:
    cells: tuple[CellCount, ...] = ()
    points: tuple[Points, ...] = ()
    without_place: int = 0  # records that are there, but not on the map

    @property
    def is_empty(self) -> bool:
        return not self.cells and not any(len(points) for points in self.points)
