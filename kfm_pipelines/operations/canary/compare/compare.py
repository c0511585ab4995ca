"""Compares two tables within a tolerance. Results hold names, counts and percentages, never a value. Pure."""

from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.operations.canary.compare.columns import ColumnChange, column_changes, format_name, is_tolerated
from kfm_pipelines.operations.canary.compare.rows import RowChanges, row_changes
from kfm_pipelines.operations.canary.compare.statistics import Difference, percent_of, statistic_differences

MAX_STATISTICS = 20
BEYOND_TOLERANCE = "differs by more than is tolerated"


@dataclass(frozen=True, slots=True)
class Comparison:
    published_rows: int
    candidate_rows: int
    published_bytes: int
    candidate_bytes: int
    identical: bool  # to the byte
    rows: RowChanges
    columns: tuple[ColumnChange, ...] = ()
    statistics: tuple[Difference, ...] = ()  # without zeros, largest first

    @property
    def rows_percent(self) -> float:
        return percent_of(self.candidate_rows - self.published_rows, self.published_rows)

    @property
    def is_empty(self) -> bool:
        """Returns whether neither table has a row, so agreement proves nothing."""
        return not self.published_rows and not self.candidate_rows

    def faults(self, tolerance: Tolerance) -> tuple[str, ...]:
        found = []
        if self.rows_percent > tolerance.rows_percent:
            found.append(f"{self.candidate_rows} rows, not {self.published_rows}: {self.rows_percent:.3g} % apart")
        if self.rows.percent > tolerance.changed_percent:
            found.append(str(self.rows))
        found += [str(change) for change in self.columns if not is_tolerated(change, tolerance)]
        return (*found, *(str(one) for one in self.statistics if one.percent > tolerance.statistics_percent))


def compare(
    published: pa.Table,
    candidate: pa.Table,
    published_data: bytes,
    candidate_data: bytes,
    primary_key: Sequence[str],
) -> Comparison:
    counted = published.num_rows, candidate.num_rows, len(published_data), len(candidate_data)
    if published_data == candidate_data:
        return Comparison(*counted, identical=True, rows=RowChanges(published.num_rows))
    rows = row_changes(published, candidate, primary_key)
    columns = tuple(column_changes(published.schema, candidate.schema))
    differing = sorted(statistic_differences(published, candidate), key=lambda one: (-one.percent, one.column))
    return Comparison(*counted, identical=False, rows=rows, columns=columns, statistics=tuple(differing))


def full_report(comparison: Comparison) -> dict[str, Any]:
    rows = comparison.rows
    return {
        "published_rows": comparison.published_rows,
        "candidate_rows": comparison.candidate_rows,
        "rows_percent": _round_percent(comparison.rows_percent),
        "published_bytes": comparison.published_bytes,
        "candidate_bytes": comparison.candidate_bytes,
        "identical": comparison.identical,
        "empty": comparison.is_empty,
        "columns": [asdict(change) for change in comparison.columns],
        "rows": {
            "matched": rows.matched,
            "added": rows.added,
            "removed": rows.removed,
            "changed": rows.changed,
            "percent": _round_percent(rows.percent),
            "columns": [asdict(column) for column in rows.columns],
        },
        "statistics": [
            {"column": one.column, "measure": one.measure, "percent": _round_percent(one.percent)}
            for one in comparison.statistics[:MAX_STATISTICS]
        ],
    }


def redacted_report(comparison: Comparison, tolerance: Tolerance, place_columns: Set[str]) -> dict[str, Any]:
    """For masked or reviewed data: a minimum that moved by a known share of the spread would be a coordinate."""
    hidden = {format_name(name) for name in place_columns}
    return {
        "identical": comparison.identical,
        "empty": comparison.is_empty,
        "columns": [asdict(change) for change in comparison.columns],
        "rows": {"matched": comparison.rows.matched, "within": _rows_are_within(comparison, tolerance)},
        "statistics_within": all(one.percent <= tolerance.statistics_percent for one in comparison.statistics),
        "statistics": [
            {"column": one.column, "measure": one.measure, "within": one.percent <= tolerance.statistics_percent}
            for one in sorted(comparison.statistics, key=lambda one: (one.column, one.measure))
            if one.column not in hidden
        ][:MAX_STATISTICS],
    }


def redacted_faults(comparison: Comparison, tolerance: Tolerance, place_columns: Set[str]) -> tuple[str, ...]:
    """Returns the redacted form of `Comparison.faults`, ordered by name."""
    hidden = {format_name(name) for name in place_columns}
    within = _rows_are_within(comparison, tolerance)
    found = [] if within else [f"rows: what they are, or how many, {BEYOND_TOLERANCE}"]
    found += [str(change) for change in comparison.columns if not is_tolerated(change, tolerance)]
    for one in sorted(comparison.statistics, key=lambda one: (one.column, one.measure)):
        if one.percent > tolerance.statistics_percent:
            measure = "" if one.column in hidden else f"{one.measure} "
            found.append(f"{one.column}: {measure}{BEYOND_TOLERANCE}")
    return tuple(dict.fromkeys(found))


def _rows_are_within(comparison: Comparison, tolerance: Tolerance) -> bool:
    return comparison.rows_percent <= tolerance.rows_percent and comparison.rows.percent <= tolerance.changed_percent


def _round_percent(percent: float) -> float:
    """Keeps three digits; all of them together could reveal a value."""
    return float(f"{percent:.3g}")
