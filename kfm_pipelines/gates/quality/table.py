"""The QA gate, and its rules about the table as a whole: row counts, rows left out, unique keys, stable bytes."""

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import RowCountTolerance
from kfm_pipelines.gates.quality.columns import NULL_SHARE, RANGE, STATISTIC
from kfm_pipelines.gates.quality.places import GEOMETRY_VALID, IN_EXTENT, OUTSIDE_AOI
from kfm_pipelines.gates.quality.rasters import RASTER_RULES, may_be_empty
from kfm_pipelines.gates.quality.scenes import CLOUDS
from kfm_pipelines.gates.quality.topology import GAPS, OVERLAPS
from kfm_pipelines.gates.verdict import (
    DUPLICATES,
    OUTSIDE_AREA,
    OUTSIDE_WINDOW,
    Finding,
    Rule,
    Severity,
    TableSubject,
    Verdict,
    error,
    format_sample,
    judge,
)

if TYPE_CHECKING:
    import pyarrow as pa

DIGEST_PREFIX_LENGTH = 12


def judge_quality(subject: TableSubject) -> Verdict:
    """Judges a table whose columns are as declared."""
    return judge("qa", QUALITY_RULES, subject)


def _check_checksum_drift(subject: TableSubject) -> Iterator[Finding]:
    """Drift is an error for transforms declared stable, and worth knowing for others."""
    before, now = subject.baselines.same_inputs_hash, subject.content_hash
    if before is None or before == now:
        return
    severity = Severity.ERROR if subject.dataset.quality.stable else Severity.INFO
    expected = "the bytes that the same objects gave before"
    measured = f"{now[:DIGEST_PREFIX_LENGTH]} instead of {before[:DIGEST_PREFIX_LENGTH]}"
    yield Finding("checksum-drift", severity, "table", expected, measured)


def _check_previous_rows(subject: TableSubject) -> Iterator[Finding]:
    before = subject.baselines.previous_rows
    if before is not None:
        change = subject.dataset.quality.rows.previous
        yield from _compare_row_count("row-count-previous", subject, change, before, "published now")


def _check_neighbour_rows(subject: TableSubject) -> Iterator[Finding]:
    change, around = subject.dataset.quality.rows.neighbours, subject.baselines.neighbour_rows
    if change is not None and around:
        where = "in the middle one of the windows around"
        yield from _compare_row_count("row-count-neighbours", subject, change, median(around), where)


def _compare_row_count(
    rule: str, subject: TableSubject, change: RowCountTolerance, before: float, where: str
) -> Iterator[Finding]:
    rows = subject.table.num_rows
    percent = _percent_change(rows, before)
    for severity, limit in ((Severity.ERROR, change.error_percent), (Severity.WARN, change.warn_percent)):
        if limit is not None and percent > limit:
            expected = f"at most {limit:g} % from the {before:g} rows {where}"
            yield Finding(rule, severity, "table", expected, _format_measured(rows, before, percent))
            return


def _percent_change(rows: int, before: float) -> float:
    if before == 0:
        return 0.0 if rows == 0 else float("inf")
    return abs(rows - before) / before * 100


def _format_measured(rows: int, before: float, percent: float) -> str:
    if before == 0:
        return f"{rows} rows"
    return f"{rows} rows, {percent:.1f} % {'more' if rows > before else 'fewer'}"


def _check_not_empty(subject: TableSubject) -> Iterator[Finding]:
    if subject.table.num_rows == 0 and not may_be_empty(subject):
        yield Finding("not-empty", Severity.WARN, "table", "at least one row", "none")


def _check_primary_key_unique(subject: TableSubject) -> Iterator[Finding]:
    keys = subject.table.select(subject.published.primary_key)
    if keys.num_rows < 2 or is_strictly_increasing(keys):
        return
    counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    surplus = keys.num_rows - counted.num_rows
    if surplus:
        names = ", ".join(keys.column_names)
        sample = format_sample(subject, _rows_with_repeated_key(keys, counted)) if subject.may_sample else ""
        yield error("primary-key-unique", names, "one row each", f"{surplus} rows too many", sample)


def is_strictly_increasing(keys: "pa.Table") -> bool:
    """Returns whether every key is greater than the one before, which is much faster than counting equal keys."""
    import pyarrow.compute as pc

    rises = None
    for column in reversed(keys.columns):
        above, below = column.slice(0, len(column) - 1), column.slice(1)
        less = pc.less(above, below)
        rises = less if rises is None else pc.or_kleene(less, pc.and_kleene(pc.equal(above, below), rises))
    return bool(pc.all(pc.fill_null(rises, False)).as_py())


def _rows_with_repeated_key(keys: "pa.Table", counted: "pa.Table") -> "pa.ChunkedArray":
    """Marks the rows that have the first of the repeated keys."""
    import pyarrow.compute as pc

    repeated = counted.filter(pc.greater(counted["count_all"], 1))
    same = None
    for name in keys.column_names:
        value = repeated[name][0]
        alike = pc.equal(keys[name], value) if value.is_valid else pc.is_null(keys[name])
        same = alike if same is None else pc.and_(same, alike)
    return same


def _check_duplicate_rows(subject: TableSubject) -> Iterator[Finding]:
    if count := subject.left_out.get(DUPLICATES):
        measured = f"{count} equal to another in all columns, left out"
        yield Finding("duplicate-rows", Severity.INFO, "table", "each row once", measured)


def _check_left_out(subject: TableSubject) -> Iterator[Finding]:
    for reason, count in sorted(subject.left_out.items()):
        if reason not in (DUPLICATES, OUTSIDE_AREA, OUTSIDE_WINDOW):
            yield Finding("left-out", Severity.INFO, "table", "all records", f"{count} left out: {reason}")


_EMPTY = "Check that the source really had nothing for this window; if so, nothing needs to be done."
_DUPLICATES = "Send the object again with only the right one of these rows, or declare a longer primary key."
_EQUAL_ROWS = "Nothing needs to be done; where many rows come twice, check whether the source sends objects again."
_LEFT_OUT = "Nothing needs to be done if the dataset is meant to leave these records out."
_PREVIOUS = "Check whether an object came twice, was cut short or is missing, or declare a larger tolerance."
_NEIGHBOURS = "Check whether an object is missing or exceeds its window, or declare a larger tolerance."
_DRIFT = "Find out what else changed, such as a library; if the new bytes are right, raise the transform version."
NOT_EMPTY = Rule("not-empty", _check_not_empty, _EMPTY)
PRIMARY_KEY_UNIQUE = Rule("primary-key-unique", _check_primary_key_unique, _DUPLICATES)
DUPLICATE_ROWS = Rule("duplicate-rows", _check_duplicate_rows, _EQUAL_ROWS)
LEFT_OUT = Rule("left-out", _check_left_out, _LEFT_OUT)
ROW_COUNT_PREVIOUS = Rule("row-count-previous", _check_previous_rows, _PREVIOUS)
ROW_COUNT_NEIGHBOURS = Rule("row-count-neighbours", _check_neighbour_rows, _NEIGHBOURS)
CHECKSUM_DRIFT = Rule("checksum-drift", _check_checksum_drift, _DRIFT)
QUALITY_RULES: tuple[Rule[TableSubject], ...] = (
    NOT_EMPTY, PRIMARY_KEY_UNIQUE, RANGE, STATISTIC, NULL_SHARE, GEOMETRY_VALID, IN_EXTENT, OUTSIDE_AOI,
    OVERLAPS, GAPS, CLOUDS, DUPLICATE_ROWS, LEFT_OUT, ROW_COUNT_PREVIOUS, ROW_COUNT_NEIGHBOURS, CHECKSUM_DRIFT,
    *RASTER_RULES,
)  # fmt: skip
# What can be judged of the true places alone; see `TableSubject.found_before_masking`.
RULES_BEFORE_MASKING: tuple[Rule[TableSubject], ...] = (PRIMARY_KEY_UNIQUE, OUTSIDE_AOI, OVERLAPS, GAPS)
