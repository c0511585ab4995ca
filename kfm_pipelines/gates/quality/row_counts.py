"""Whether there are about as many rows as before, and as in the windows around this one."""

from collections.abc import Iterator
from statistics import median

from kfm_pipelines.declarations import Change
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity


def _previous(subject: TableSubject) -> Iterator[Finding]:
    before = subject.precedents.previous_rows
    if before is not None:
        change = subject.dataset.quality.rows.previous
        yield from _compared("row-count-previous", subject, change, before, "published now")


def _neighbours(subject: TableSubject) -> Iterator[Finding]:
    change, around = subject.dataset.quality.rows.neighbours, subject.precedents.neighbour_rows
    if change is not None and around:
        middle = median(around)
        yield from _compared("row-count-neighbours", subject, change, middle, "in the middle one of the windows around")


def _compared(rule: str, subject: TableSubject, change: Change, before: float, where: str) -> Iterator[Finding]:
    rows = subject.table.num_rows
    percent = _percent(rows, before)
    for severity, limit in ((Severity.ERROR, change.error_percent), (Severity.WARN, change.warn_percent)):
        if limit is not None and percent > limit:
            expected = f"at most {limit:g} % from the {before:g} rows {where}"
            yield Finding(rule, severity, "table", expected, _measured(rows, before, percent))
            return


def _percent(rows: int, before: float) -> float:
    if before == 0:
        return 0.0 if rows == 0 else float("inf")
    return abs(rows - before) / before * 100


def _measured(rows: int, before: float, percent: float) -> str:
    if before == 0:
        return f"{rows} rows"
    return f"{rows} rows, {percent:.1f} % {'more' if rows > before else 'fewer'}"


ROW_COUNT_PREVIOUS = Rule(
    "row-count-previous",
    _previous,
    "Look whether an object of this window came twice, was cut short or is missing; a larger change can be declared.",
)
ROW_COUNT_NEIGHBOURS = Rule(
    "row-count-neighbours",
    _neighbours,
    "Look whether an object of this window is missing or holds more than its window; a larger change can be declared.",
)
