"""Rules about the values of single columns: statistics, share of nulls, ranges."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import NullLimits, Range, Statistic
from kfm_pipelines.gates.verdict import Finding, Rule, Severity, TableSubject, count_true, format_sample

if TYPE_CHECKING:
    import pyarrow as pa


def is_published_as_declared(subject: TableSubject, name: str) -> bool:
    """Returns whether the published column has its declared type; masking removes columns or turns them into text."""
    declared = subject.dataset.table.column(name).type
    return any(column.name == name and column.type == declared for column in subject.published.columns)


def not_judged_finding(rule: str, threshold: Range | NullLimits, expected: str) -> Finding:
    return Finding(rule, Severity.INFO, threshold.column, expected, "not published, so not judged")


def format_bounds(bounds: Range) -> str:
    if bounds.max is None:
        return f"at least {bounds.min:.12g}"
    if bounds.min is None:
        return f"at most {bounds.max:.12g}"
    return f"{bounds.min:.12g} to {bounds.max:.12g}"


def _check_statistics(subject: TableSubject) -> Iterator[Finding]:
    for bounds in subject.dataset.quality.statistics:
        expected = f"{bounds.measure} of {format_bounds(bounds)}"
        if not is_published_as_declared(subject, bounds.column):
            yield not_judged_finding("statistic", bounds, expected)
            continue
        values = subject.table.column(bounds.column)
        if values.null_count == len(values):
            continue
        found = _measure(values, bounds)
        if not _is_within(found, bounds):
            severity = Severity(bounds.severity)
            yield Finding("statistic", severity, bounds.column, expected, *_format_measured(subject, found, bounds))


def _measure(values: "pa.ChunkedArray", bounds: Statistic) -> float:
    """Measures the values that are not null; the standard deviation is that of the population."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if bounds.measure == "distinct":
        return float(pc.count_distinct(values, mode="only_valid").as_py())
    numbers = values.cast(pa.float64(), safe=False)  # so that no sum of integers overflows
    if bounds.measure == "median":
        found = pc.quantile(numbers, 0.5)[0].as_py()
    else:
        found = {"mean": pc.mean, "stddev": pc.stddev, "sum": pc.sum}[bounds.measure](numbers).as_py()
    return math.nan if found is None else float(found)


def _is_within(found: float, bounds: Statistic) -> bool:
    """NaN is outside."""
    least, most = bounds.min, bounds.max
    return (least is None or found >= least) and (most is None or found <= most)


def _format_measured(subject: TableSubject, found: float, bounds: Statistic) -> tuple[str, str]:
    """Returns what was measured, and the number only where samples are allowed: for one row it is the row's value."""
    if bounds.measure == "distinct":
        return f"{found:.0f}", ""
    too_little = bounds.min is not None and found < bounds.min
    measured = "less" if too_little else "more" if bounds.max is not None and found > bounds.max else "no number"
    hidden = not subject.may_sample or bounds.column in subject.published.place_columns
    return measured, "" if hidden else f"{bounds.measure}={found:.6g}"


def _check_null_share(subject: TableSubject) -> Iterator[Finding]:
    rows = subject.table.num_rows
    for allowed in subject.dataset.quality.nulls:
        if not is_published_as_declared(subject, allowed.column):
            yield not_judged_finding("null-share", allowed, _format_expected(allowed, _strictest_severity(allowed)))
            continue
        values = subject.table.column(allowed.column)
        nulls = values.null_count
        severity = _severity(allowed, nulls / rows) if rows else None
        if severity is not None:
            measured = f"{nulls} of {rows} rows ({nulls / rows:.1%})"
            sample = format_sample(subject, values.is_null())
            yield Finding("null-share", severity, allowed.column, _format_expected(allowed, severity), measured, sample)


def _severity(allowed: NullLimits, share: float) -> Severity | None:
    if allowed.error_above is not None and share > allowed.error_above:
        return Severity.ERROR
    if allowed.warn_above is not None and share > allowed.warn_above:
        return Severity.WARN
    return None


def _strictest_severity(allowed: NullLimits) -> Severity:
    return Severity.ERROR if allowed.error_above is not None else Severity.WARN


def _format_expected(allowed: NullLimits, severity: Severity) -> str:
    limit = allowed.error_above if severity is Severity.ERROR else allowed.warn_above
    return f"at most {limit:.1%} missing"


def _check_range(subject: TableSubject) -> Iterator[Finding]:
    for bounds in subject.dataset.quality.ranges:
        expected = format_bounds(bounds)
        if not is_published_as_declared(subject, bounds.column):
            yield not_judged_finding("range", bounds, expected)
            continue
        outside = _outside_range(subject.table.column(bounds.column), bounds)
        if count := count_true(outside):
            measured = f"{count} of {subject.table.num_rows} rows outside"
            sample = format_sample(subject, outside, bounds.column)
            yield Finding("range", Severity(bounds.severity), bounds.column, expected, measured, sample)


def _outside_range(values: "pa.ChunkedArray", bounds: Range) -> "pa.ChunkedArray":
    """Marks values outside the range, NaN and infinity included; nulls stay null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.types.is_integer(values.type)
    inside = [] if whole else [pc.is_finite(values)]
    if bounds.min is not None:
        inside.append(pc.greater_equal(values, _to_int64(math.ceil(bounds.min)) if whole else bounds.min))
    if bounds.max is not None:
        inside.append(pc.less_equal(values, _to_int64(math.floor(bounds.max)) if whole else bounds.max))
    within = inside[0]
    for condition in inside[1:]:
        within = pc.and_(within, condition)
    return pc.invert(within)


def _to_int64(bound: int) -> "pa.Scalar":
    """Keeps large integers exact, which comparing them as floats would not."""
    import pyarrow as pa

    return pa.scalar(max(-(2**63), min(bound, 2**63 - 1)), pa.int64())


_COMPARE = "Compare with earlier windows: a unit or an instrument may have changed; declare other bounds if it has."
_MISSING = "Ask the source why so much is missing; send the object again, or declare a higher share if it is usual."
_CORRECT = "Correct these values at the source and send the object again, or declare wider bounds if they are right."
STATISTIC = Rule("statistic", _check_statistics, _COMPARE)
NULL_SHARE = Rule("null-share", _check_null_share, _MISSING)
RANGE = Rule("range", _check_range, _CORRECT)
