"""Whether every value lies within its declared bounds."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import Range
from kfm_pipelines.gates.counting import count_true
from kfm_pipelines.gates.quality.columns import between, is_judged, not_judged
from kfm_pipelines.gates.samples import sample_of
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity

if TYPE_CHECKING:
    import pyarrow as pa


def _range(subject: TableSubject) -> Iterator[Finding]:
    for bounds in subject.dataset.quality.ranges:
        expected = between(bounds)
        if not is_judged(subject, bounds.column):
            yield not_judged("range", bounds, expected)
            continue
        outside = _outside(subject.table.column(bounds.column), bounds)
        if count := count_true(outside):
            measured = f"{count} of {subject.table.num_rows} rows outside"
            sample = sample_of(subject, outside, bounds.column)
            yield Finding("range", Severity(bounds.severity), bounds.column, expected, measured, sample)


def _outside(values: "pa.ChunkedArray", bounds: Range) -> "pa.ChunkedArray":
    """What is not there is neither inside nor outside; what is no number, or endless, is outside."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.types.is_integer(values.type)
    inside = [] if whole else [pc.is_finite(values)]
    if bounds.min is not None:
        inside.append(pc.greater_equal(values, _whole(math.ceil(bounds.min)) if whole else bounds.min))
    if bounds.max is not None:
        inside.append(pc.less_equal(values, _whole(math.floor(bounds.max)) if whole else bounds.max))
    within = inside[0]
    for condition in inside[1:]:
        within = pc.and_(within, condition)
    return pc.invert(within)


def _whole(bound: int) -> "pa.Scalar":
    """Large whole numbers are not to be compared with fractions: not each of them is one."""
    import pyarrow as pa

    return pa.scalar(max(-(2**63), min(bound, 2**63 - 1)), pa.int64())


RANGE = Rule(
    "range",
    _range,
    "Look at these values at the source: correct them there and send the object again, or declare wider bounds if they "
    "are right.",
)
