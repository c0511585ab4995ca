"""How much of a column is missing."""

from collections.abc import Iterator

from kfm_pipelines.declarations import Nulls
from kfm_pipelines.gates.quality.columns import is_judged, not_judged
from kfm_pipelines.gates.samples import sample_of
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity


def _null_share(subject: TableSubject) -> Iterator[Finding]:
    rows = subject.table.num_rows
    for allowed in subject.dataset.quality.nulls:
        if not is_judged(subject, allowed.column):
            yield not_judged("null-share", allowed, _expected(allowed, _strictest(allowed)))
            continue
        values = subject.table.column(allowed.column)
        nulls = values.null_count
        severity = _severity(allowed, nulls / rows) if rows else None
        if severity is not None:
            measured = f"{nulls} of {rows} rows ({nulls / rows:.1%})"
            sample = sample_of(subject, values.is_null())
            yield Finding("null-share", severity, allowed.column, _expected(allowed, severity), measured, sample)


def _severity(allowed: Nulls, share: float) -> Severity | None:
    """The worst that applies."""
    if allowed.error_above is not None and share > allowed.error_above:
        return Severity.ERROR
    if allowed.warn_above is not None and share > allowed.warn_above:
        return Severity.WARN
    return None


def _strictest(allowed: Nulls) -> Severity:
    return Severity.ERROR if allowed.error_above is not None else Severity.WARN


def _expected(allowed: Nulls, severity: Severity) -> str:
    limit = allowed.error_above if severity is Severity.ERROR else allowed.warn_above
    return f"at most {limit:.1%} missing"


NULL_SHARE = Rule(
    "null-share",
    _null_share,
    "Ask the source why so much is missing; send the object again when it is there, or declare a higher share if it is "
    "usual.",
)
