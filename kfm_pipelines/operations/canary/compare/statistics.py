"""Compares the columns of two tables by statistics. Pure.

Differences are in percent, relative to
- `missing` (null, NaN or infinite): nothing, these are percentage points of rows;
- `distinct`: the published number of distinct values;
- `mean`, `min`, `max`: the published spread (max − min), so that degrees, kelvins and times compare alike;
- `stddev`: the published one.
Where that is zero, the published value itself is used; where that is zero too, or one side has no value, any difference
counts as 100 percent.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kfm_pipelines.operations.canary.compare.columns import format_name

ROUNDING_ERROR_PERCENT = 1e-9  # from summing in another order
MAX_PERCENT = 1e6  # more is not worth printing


@dataclass(frozen=True, slots=True)
class Difference:
    column: str
    measure: str
    percent: float

    def __str__(self) -> str:
        return f"{self.column}: {self.measure} differs by {self.percent:.3g} %"


def statistic_differences(published: pa.Table, candidate: pa.Table) -> Iterator[Difference]:
    for name in published.column_names:
        if name in candidate.column_names:
            before, after = _column_statistics(published.column(name)), _column_statistics(candidate.column(name))
            for measure, percent in _measure_differences(before, after):
                if percent > ROUNDING_ERROR_PERCENT:
                    yield Difference(format_name(name), measure, percent)


@dataclass(frozen=True, slots=True)
class _ColumnStatistics:
    missing: float  # a share of the rows
    distinct: int
    mean: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    stddev: float | None = None

    @property
    def spread(self) -> float:
        return 0.0 if self.minimum is None or self.maximum is None else self.maximum - self.minimum


def _measure_differences(before: _ColumnStatistics, after: _ColumnStatistics) -> Iterator[tuple[str, float]]:
    yield "missing", round(abs(after.missing - before.missing) * 100, 6)
    yield "distinct", percent_of(after.distinct - before.distinct, before.distinct)
    yield "mean", _relative_percent(before.mean, after.mean, before.spread)
    yield "min", _relative_percent(before.minimum, after.minimum, before.spread)
    yield "max", _relative_percent(before.maximum, after.maximum, before.spread)
    yield "stddev", _relative_percent(before.stddev, after.stddev, before.stddev or 0.0)


def _relative_percent(before: float | None, after: float | None, scale: float) -> float:
    if before is None or after is None:
        return 0.0 if before == after else 100.0
    return percent_of(after - before, scale or before)


def percent_of(difference: float, scale: float) -> float:
    if not difference:
        return 0.0
    if not scale:
        return 100.0
    percent = abs(difference / scale) * 100
    return min(percent, MAX_PERCENT) if math.isfinite(percent) else MAX_PERCENT


def _column_statistics(column: pa.ChunkedArray) -> _ColumnStatistics:
    numbers = _as_floats(column)
    if numbers is None:
        return _ColumnStatistics(
            _fraction(column.null_count, len(column)), pc.count_distinct(column, mode="only_valid").as_py()
        )
    finite = numbers.filter(pc.fill_null(pc.is_finite(numbers), False))
    measured = _fraction(len(column) - len(finite), len(column)), pc.count_distinct(finite).as_py()
    if len(finite) == 0:
        return _ColumnStatistics(*measured)
    ends = pc.min_max(finite).as_py()
    # Times in microseconds are too large to square, so subtract the minimum first.
    centred = pc.subtract(finite, pa.scalar(ends["min"]))
    mean, stddev = pc.mean(centred).as_py(), pc.stddev(centred, ddof=0).as_py()
    return _ColumnStatistics(*measured, ends["min"] + mean, ends["min"], ends["max"], stddev)


def _as_floats(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Returns numbers and times as floats, or None for other types."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.float64())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).cast(pa.float64(), safe=False)
    return None


def _fraction(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
