"""Compares two tables within a tolerance. Results hold names, counts and percentages, never a value. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.operations.canary.compare.columns import ColumnChange, column_changes, is_tolerated
from kfm_pipelines.operations.canary.compare.rows import RowChanges, row_changes
from kfm_pipelines.operations.canary.compare.statistics import Difference, percent_of, statistic_differences

if TYPE_CHECKING:
    import pyarrow as pa


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
    published: "pa.Table",
    candidate: "pa.Table",
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
