"""What a gate says."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that did not hold: what was expected, what was measured. Never a value of the data."""

    rule: str
    severity: Severity
    subject: str
    expected: str
    measured: str

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.measured}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Green unless a finding is an error."""

    gate: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def reason(self) -> str:
        errors = [str(finding) for finding in self.findings if finding.severity is Severity.ERROR]
        more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
        return "; ".join(errors[:3]) + more
