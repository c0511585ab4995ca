"""What is kept of a comparison for people to read: names, counts and differences, never a value of the data.

Where something is masked or reviewed, not even how far apart the two are: what is published is public, so a minimum
that differs by so many percent of its spread is a coordinate. There it is kept only whether each measure is within the
tolerance, and of columns that tell a place not which measure.
"""

from collections.abc import Iterator, Set
from dataclasses import asdict
from typing import Any

from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.operations.canary.compare.columns import format_name, is_tolerated
from kfm_pipelines.operations.canary.compare.compare import Comparison

MAX_STATISTICS = 20
BEYOND_TOLERANCE = "differs by more than is tolerated"


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
    """As `Comparison.faults`, one sentence each, in the order of names."""
    hidden = {format_name(name) for name in place_columns}

    def found() -> Iterator[str]:
        if not _rows_are_within(comparison, tolerance):
            yield f"rows: what they are, or how many, {BEYOND_TOLERANCE}"
        yield from (str(change) for change in comparison.columns if not is_tolerated(change, tolerance))
        for one in sorted(comparison.statistics, key=lambda one: (one.column, one.measure)):
            if one.percent > tolerance.statistics_percent:
                yield (
                    f"{one.column}: {BEYOND_TOLERANCE}"
                    if one.column in hidden
                    else f"{one.column}: {one.measure} {BEYOND_TOLERANCE}"
                )

    return tuple(dict.fromkeys(found()))


def _rows_are_within(comparison: Comparison, tolerance: Tolerance) -> bool:
    return comparison.rows_percent <= tolerance.rows_percent and comparison.rows.percent <= tolerance.changed_percent


def _round_percent(percent: float) -> float:
    """Nobody judges by more digits, and all of them together would be a value."""
    return float(f"{percent:.3g}")
