"""What is kept of a comparison for people to read: names, counts and differences, never a value of the data."""

from dataclasses import asdict
from typing import Any

from kfm_pipelines.gates.comparison import Comparison

STATISTICS_KEPT = 20


def full_report(comparison: Comparison) -> dict[str, Any]:
    rows = comparison.rows
    return {
        "published_rows": comparison.published_rows,
        "candidate_rows": comparison.candidate_rows,
        "rows_percent": _rounded(comparison.rows_percent),
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
            "percent": _rounded(rows.percent),
            "columns": [asdict(column) for column in rows.columns],
        },
        "statistics": [
            {"column": one.column, "measure": one.measure, "percent": _rounded(one.percent)}
            for one in comparison.statistics[:STATISTICS_KEPT]
        ],
    }


def _rounded(percent: float) -> float:
    """Nobody judges by more digits, and all of them together would be a value."""
    return float(f"{percent:.3g}")
