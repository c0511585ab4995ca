"""Whether a number made of a whole column lies within its declared bounds."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Statistic
from kfm_pipelines.gates.quality.columns import between, is_judged, not_judged
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity

if TYPE_CHECKING:
    import pyarrow as pa


def _statistic(subject: TableSubject) -> Iterator[Finding]:
    for bounds in subject.dataset.quality.statistics:
        expected = f"{bounds.measure} of {between(bounds)}"
        if not is_judged(subject, bounds.column):
            yield not_judged("statistic", bounds, expected)
            continue
        values = subject.table.column(bounds.column)
        if values.null_count == len(values):
            continue
        found = _measured(values, bounds)
        if not _is_inside(found, bounds):
            severity = Severity(bounds.severity)
            yield Finding("statistic", severity, bounds.column, expected, *_told(subject, found, bounds))


def _measured(values: "pa.ChunkedArray", bounds: Statistic) -> float:
    """Of the values that are there. The deviation is that of the column itself, not of what it may be a sample of."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if bounds.measure == "distinct":
        return float(pc.count_distinct(values, mode="only_valid").as_py())
    numbers = values.cast(pa.float64(), safe=False)  # so that no sum of whole numbers runs over
    if bounds.measure == "median":
        found = pc.quantile(numbers, 0.5)[0].as_py()
    else:
        found = {"mean": pc.mean, "stddev": pc.stddev, "sum": pc.sum}[bounds.measure](numbers).as_py()
    return math.nan if found is None else float(found)


def _is_inside(found: float, bounds: Statistic) -> bool:
    """Written so that what is no number is outside."""
    least, most = bounds.min, bounds.max
    return (least is None or found >= least) and (most is None or found <= most)


def _told(subject: TableSubject, found: float, bounds: Statistic) -> tuple[str, str]:
    """What was measured, and the number itself where it may be shown: of a single row it is that row's value."""
    if bounds.measure == "distinct":
        return f"{found:.0f}", ""
    too_little = bounds.min is not None and found < bounds.min
    measured = "less" if too_little else "more" if bounds.max is not None and found > bounds.max else "no number"
    hidden = not subject.may_show or bounds.column in subject.published.place_columns
    return measured, "" if hidden else f"{bounds.measure}={found:.6g}"


STATISTIC = Rule(
    "statistic",
    _statistic,
    "Compare this window with earlier ones at the source: a unit or an instrument may have changed; declare other "
    "bounds if the change is real.",
)
