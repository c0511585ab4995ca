"""The stored report of a comparison: names, counts and differences, never a value of the data.

For masked or reviewed data the size of a difference would reveal a value too, because what is published is public: a
minimum that moved by a known share of the spread is a coordinate. There the report holds only whether each measure is
within tolerance, and for columns that locate a place not even which measure.
"""

from collections.abc import Set
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
