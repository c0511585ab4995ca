"""Makes one raster of several with the same grid, pixel by pixel. Missing values count for nothing."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.rasters import Composite
from kfm_pipelines.raster.grid import Pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float32]


def combine(rasters: Iterator[Pixels], how: Composite) -> Pixels:
    """Holds one raster at a time besides the result, so it may be an iterator that reads them."""
    first = next(rasters)
    return Pixels(first.grid, _COMPOSITES[how](first.values, (one.values for one in rasters)))


def _keep_first(values: "Values", others: "Iterator[Values]") -> "Values":
    import numpy as np

    for other in others:
        np.copyto(values, other, where=np.isnan(values))
    return values


def _keep_least(values: "Values", others: "Iterator[Values]") -> "Values":
    import numpy as np

    for other in others:
        np.fmin(values, other, out=values)
    return values


def _keep_largest(values: "Values", others: "Iterator[Values]") -> "Values":
    import numpy as np

    for other in others:
        np.fmax(values, other, out=values)
    return values


def _add(values: "Values", others: "Iterator[Values]") -> "Values":
    import numpy as np

    sums, counts = _sums_and_counts(values, others)
    return np.where(counts, sums, np.nan).astype(np.float32)


def _average(values: "Values", others: "Iterator[Values]") -> "Values":
    import numpy as np

    sums, counts = _sums_and_counts(values, others)
    return np.where(counts, sums / np.maximum(counts, 1), np.nan).astype(np.float32)


def _sums_and_counts(values: "Values", others: "Iterator[Values]") -> "tuple[NDArray[np.float64], NDArray[Any]]":
    import numpy as np

    sums, counts = np.nan_to_num(values.astype(np.float64), copy=False), (~np.isnan(values)).astype(np.int32)
    for other in others:
        sums += np.nan_to_num(other)
        counts += ~np.isnan(other)
    return sums, counts


_COMPOSITES: "Mapping[Composite, Callable[[Values, Iterator[Values]], Values]]" = {
    "refuse": _keep_first,  # of one: several are refused before they are read
    "first": _keep_first,
    "mean": _average,
    "min": _keep_least,
    "max": _keep_largest,
    "sum": _add,
}
