"""Whether the same objects still give the same bytes."""

from collections.abc import Iterator

from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity

DIGITS_SHOWN = 12


def _checksum_drift(subject: TableSubject) -> Iterator[Finding]:
    """A transform that is not declared stable may drift, but whoever looks should know that it did."""
    before, now = subject.precedents.same_objects_gave, subject.content_hash
    if before is None or before == now:
        return
    severity = Severity.ERROR if subject.dataset.quality.stable else Severity.INFO
    expected = "the bytes that the same objects gave before"
    yield Finding(
        "checksum-drift", severity, "table", expected, f"{now[:DIGITS_SHOWN]} instead of {before[:DIGITS_SHOWN]}"
    )


CHECKSUM_DRIFT = Rule(
    "checksum-drift",
    _checksum_drift,
    "Find out what changed besides the objects, a library for example: if the new bytes are right, give the transform "
    "another version.",
)
