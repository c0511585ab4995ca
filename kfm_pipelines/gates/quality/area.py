"""Rules about what is not published: places outside the area of the dataset, and rows that compute has left out."""

from collections.abc import Iterator

from kfm_pipelines.gates.verdict import (
    DUPLICATES,
    OUTSIDE_AREA,
    OUTSIDE_WINDOW,
    Finding,
    Rule,
    Severity,
    TableSubject,
    format_sample,
)
from kfm_pipelines.parquet.area import rows_outside

_RULE = "outside-aoi"


def _check_outside_area(subject: TableSubject) -> Iterator[Finding]:
    """An error unless the dataset declares that it only warns. What was clipped is worth knowing."""
    yield from subject.found_before_masking
    if clipped := subject.left_out.get(OUTSIDE_AREA):
        expected = f"places in {subject.dataset.key.aoi}"
        yield Finding(_RULE, Severity.INFO, "table", expected, f"{clipped} outside, left out")
    if subject.area is None or not subject.dataset.has_judged_places:
        return
    outside = rows_outside(subject.table, subject.dataset.table, subject.area)
    if outside is not None and (count := int(outside.sum())):
        import pyarrow as pa

        severity = Severity.WARN if subject.dataset.outside_aoi == "warn" else Severity.ERROR
        named = ", ".join(subject.dataset.table.position_columns)
        measured = f"{count} of {subject.table.num_rows} rows outside"
        sample = format_sample(subject, pa.array(outside))
        yield Finding(_RULE, severity, named, f"places in {subject.area.name}", measured, sample)


def _check_duplicate_rows(subject: TableSubject) -> Iterator[Finding]:
    if count := subject.left_out.get(DUPLICATES):
        measured = f"{count} equal to another in all columns, left out"
        yield Finding("duplicate-rows", Severity.INFO, "table", "each row once", measured)


def _check_left_out(subject: TableSubject) -> Iterator[Finding]:
    for reason, count in sorted(subject.left_out.items()):
        if reason not in (DUPLICATES, OUTSIDE_AREA, OUTSIDE_WINDOW):
            yield Finding("left-out", Severity.INFO, "table", "all records", f"{count} left out: {reason}")


_OUTSIDE = (
    "Check these places, and that the object belongs to this dataset; if they are right, declare another `aoi`, or "
    "`outside_aoi: clip` or `warn`."
)
_DUPLICATES = "Nothing needs to be done; where many rows come twice, check whether the source sends objects again."
_LEFT_OUT = "Nothing needs to be done if the dataset is meant to leave these records out."
OUTSIDE_AOI = Rule(_RULE, _check_outside_area, _OUTSIDE)
DUPLICATE_ROWS = Rule("duplicate-rows", _check_duplicate_rows, _DUPLICATES)
LEFT_OUT = Rule("left-out", _check_left_out, _LEFT_OUT)
