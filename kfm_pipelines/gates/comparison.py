"""What a candidate made of a key next to what is published of it, and whether that is close enough.

Pure. What is said are names, counts and differences in percent, never a value of the data: nobody has reviewed what the
candidate made, and of masked data even a minimum says something.

A difference in percent is, of a column's
- `missing` (null, NaN or infinite): percentage points between the two shares of rows;
- `distinct` values: of the published number of them;
- `mean`, `min`, `max`: of the published spread (max − min), so that degrees, kelvins and times are measured alike;
- `stddev`: of the published one.
Where what it would be measured by is zero, the published value's own magnitude takes its place, and where that is zero
too, or one side has no value at all, anything different is 100 percent.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.events.quoting import one_line

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_PERCENT = 1e6  # beyond it nobody wants the digits
LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """`what` is added, removed, type, nullable, unit or order."""

    column: str
    what: str
    published: str = ""
    candidate: str = ""

    def __str__(self) -> str:
        if self.what in ("added", "removed"):
            return f"column {self.column} is {self.what}"
        if self.what == "order":
            return "the columns come in another order"
        return f"column {self.column}: {self.what} is {self.candidate}, not {self.published}"


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much one measure of one column differs."""

    column: str
    measure: str
    percent: float

    def __str__(self) -> str:
        return f"{self.column}: {self.measure} differs by {self.percent:.3g} %"


@dataclass(frozen=True, slots=True)
class Comparison:
    published_rows: int
    candidate_rows: int
    published_bytes: int
    candidate_bytes: int
    identical: bool  # to the byte
    columns: tuple[ColumnChange, ...] = ()
    statistics: tuple[Difference, ...] = ()  # those that are not zero, the largest first

    @property
    def rows_percent(self) -> float:
        return _percent(self.candidate_rows - self.published_rows, self.published_rows)

    def faults(self, tolerance: Tolerance) -> tuple[str, ...]:
        """What is beyond the tolerance, one sentence each."""
        return (
            *self._row_faults(tolerance),
            *(str(change) for change in self.columns if not _is_tolerated(change, tolerance)),
            *(str(one) for one in self.statistics if one.percent > tolerance.statistics_percent),
        )

    def _row_faults(self, tolerance: Tolerance) -> Iterator[str]:
        if self.rows_percent > tolerance.rows_percent:
            yield f"{self.candidate_rows} rows, not {self.published_rows}: {self.rows_percent:.3g} % apart"


def compare(published: "pa.Table", candidate: "pa.Table", published_data: bytes, candidate_data: bytes) -> Comparison:
    """The tables, and the Parquet files they are in."""
    return Comparison(
        published_rows=published.num_rows,
        candidate_rows=candidate.num_rows,
        published_bytes=len(published_data),
        candidate_bytes=len(candidate_data),
        identical=published_data == candidate_data,
        columns=tuple(_changes(published.schema, candidate.schema)),
        statistics=tuple(sorted(_differences(published, candidate), key=lambda one: (-one.percent, one.column))),
    )


def _is_tolerated(change: ColumnChange, tolerance: Tolerance) -> bool:
    match tolerance.columns:
        case "any":
            return True
        case "additive":
            return change.what in ("added", "order")
        case "identical":
            return False


def _changes(published: "pa.Schema", candidate: "pa.Schema") -> Iterator[ColumnChange]:
    for name in published.names:
        if name not in candidate.names:
            yield ColumnChange(_shown(name), "removed")
    for name in candidate.names:
        if name not in published.names:
            yield ColumnChange(_shown(name), "added")
    shared = [name for name in published.names if name in candidate.names]
    for name in shared:
        before, after = _facts(published.field(name)), _facts(candidate.field(name))
        for what, was in before.items():
            if after[what] != was:
                yield ColumnChange(_shown(name), what, was, after[what])
    if shared != [name for name in candidate.names if name in published.names]:
        yield ColumnChange("", "order")


def _facts(field: "pa.Field") -> Mapping[str, str]:
    unit = (field.metadata or {}).get(b"unit", b"").decode("utf-8", "replace")
    return {
        "type": _shown(str(field.type)),
        "nullable": "yes" if field.nullable else "no",
        "unit": _shown(unit) or "none",
    }


def _differences(published: "pa.Table", candidate: "pa.Table") -> Iterator[Difference]:
    for name in published.column_names:
        if name in candidate.column_names:
            before, after = _measures(published.column(name)), _measures(candidate.column(name))
            for measure, percent in _apart(before, after):
                if percent:
                    yield Difference(_shown(name), measure, percent)


@dataclass(frozen=True, slots=True)
class _Measures:
    missing: float  # a share of the rows
    distinct: int
    mean: float | None = None
    least: float | None = None
    most: float | None = None
    stddev: float | None = None

    @property
    def spread(self) -> float:
        return 0.0 if self.least is None or self.most is None else self.most - self.least


def _apart(before: _Measures, after: _Measures) -> Iterator[tuple[str, float]]:
    yield "missing", round(abs(after.missing - before.missing) * 100, 6)
    yield "distinct", _percent(after.distinct - before.distinct, before.distinct)
    yield "mean", _relative(before.mean, after.mean, before.spread)
    yield "min", _relative(before.least, after.least, before.spread)
    yield "max", _relative(before.most, after.most, before.spread)
    yield "stddev", _relative(before.stddev, after.stddev, before.stddev or 0.0)


def _relative(before: float | None, after: float | None, scale: float) -> float:
    if before is None or after is None:
        return 0.0 if before == after else 100.0
    return _percent(after - before, scale or before)


def _percent(difference: float, scale: float) -> float:
    if not difference:
        return 0.0
    if not scale:
        return 100.0
    percent = abs(difference / scale) * 100
    return min(percent, LARGEST_PERCENT) if math.isfinite(percent) else LARGEST_PERCENT


def _measures(column: "pa.ChunkedArray") -> _Measures:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = _numbers(column)
    if numbers is None:
        return _Measures(_share(column.null_count, len(column)), pc.count_distinct(column, mode="only_valid").as_py())
    finite = numbers.filter(pc.fill_null(pc.is_finite(numbers), False))
    measured = _share(len(column) - len(finite), len(column)), pc.count_distinct(finite).as_py()
    if len(finite) == 0:
        return _Measures(*measured)
    ends = pc.min_max(finite).as_py()
    # Times as microseconds are large: what they have in common is taken away before it is squared.
    centred = pc.subtract(finite, pa.scalar(ends["min"]))
    mean, stddev = pc.mean(centred).as_py(), pc.stddev(centred, ddof=0).as_py()
    return _Measures(*measured, ends["min"] + mean, ends["min"], ends["max"], stddev)


def _numbers(column: "pa.ChunkedArray") -> "pa.ChunkedArray | None":
    """The column as floating point numbers: numbers, and times as what they count. None for everything else."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.float64())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).cast(pa.float64(), safe=False)
    return None


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _shown(name: str) -> str:
    return one_line(name, LONGEST_NAME)
