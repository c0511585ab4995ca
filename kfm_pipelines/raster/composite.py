"""Makes one raster of several, pixel by pixel: layers of one place, or tiles side by side. Missing values count for
nothing."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.rasters import Composite
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.grid import PixelGrid, Pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float32]


def combine(rasters: Iterator[Pixels], onto: PixelGrid, bands: int, how: Composite) -> Pixels:
    """Puts rasters on a grid that contains each of them. Holds one at a time besides the result, so it may be an
    iterator that reads them."""
    shape = (bands, onto.height, onto.width)
    placed = ((_place(onto, one.grid), one.values) for one in rasters)
    if how in ("mean", "sum"):
        return Pixels(onto, _add_up(placed, shape, average=how == "mean"))
    return Pixels(onto, _keep(placed, shape, _KEEP[how]))


def _place(onto: PixelGrid, tile: PixelGrid) -> tuple[slice, slice, slice]:
    left, top = onto.offset_of(tile)
    return slice(None), slice(top, top + tile.height), slice(left, left + tile.width)


def _keep(
    placed: "Iterator[tuple[tuple[slice, ...], Values]]",
    shape: tuple[int, ...],
    keep: "Callable[[Values, Values], None]",
) -> "Values":
    import numpy as np

    values = np.full(shape, np.nan, np.float32)
    for place, others in placed:
        keep(values[place], others)
    return values


def _keep_first(values: "Values", others: "Values") -> None:
    import numpy as np

    np.copyto(values, others, where=np.isnan(values))


def _keep_least(values: "Values", others: "Values") -> None:
    import numpy as np

    np.fmin(values, others, out=values)


def _keep_largest(values: "Values", others: "Values") -> None:
    import numpy as np

    np.fmax(values, others, out=values)


_KEEP: "Mapping[Composite, Callable[[Values, Values], None]]" = {
    "refuse": _keep_first,  # of one: several are refused before they are read
    "first": _keep_first,
    "min": _keep_least,
    "max": _keep_largest,
}


def _add_up(placed: "Iterator[tuple[tuple[slice, ...], Values]]", shape: tuple[int, ...], *, average: bool) -> "Values":
    import numpy as np

    sums, counts = np.zeros(shape, np.float64), np.zeros(shape, np.int32)
    for place, others in placed:
        sums[place] += np.nan_to_num(others)
        counts[place] += ~np.isnan(others)
    if average:
        np.divide(sums, counts, out=sums, where=counts > 0)
    sums[counts == 0] = np.nan
    with np.errstate(over="ignore"):
        values: Values = sums.astype(np.float32)
    if np.isinf(values).any():
        raise InputUnreadable("the objects of the key add up to values beyond 32-bit floats; composite: sum cannot be")
    return values
