"""What the rules about columns share: whether a column is still there to be judged, and its bounds in words."""

from kfm_pipelines.declarations import Nulls, Range
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Severity


def is_judged(subject: TableSubject, name: str) -> bool:
    """Whether the column is published as what it was declared: masking takes columns away, or puts words in their
    place."""
    declared = subject.dataset.table.column(name).type
    return any(column.name == name and column.type == declared for column in subject.published.columns)


def not_judged(rule: str, threshold: Range | Nulls, expected: str) -> Finding:
    return Finding(rule, Severity.INFO, threshold.column, expected, "not published, so not judged")


def between(bounds: Range) -> str:
    """The bounds in words."""
    if bounds.max is None:
        return f"at least {bounds.min:.12g}"
    if bounds.min is None:
        return f"at most {bounds.max:.12g}"
    return f"{bounds.min:.12g} to {bounds.max:.12g}"
