"""What a gate says, and the rules it says it by."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S")


class Severity(StrEnum):
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


WORST_FIRST = (Severity.ERROR, Severity.WARN, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that did not hold: what was expected, what was measured, and a few of the rows it is about. Nothing
    but the sample has values of the data in it, and that only where they may be shown (`samples`)."""

    rule: str
    severity: Severity
    subject: str
    expected: str
    measured: str
    sample: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.measured}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Green unless a finding is an error."""

    gate: str
    findings: tuple[Finding, ...]
    rules: tuple[str, ...] = ()  # what was looked at, found or not

    @property
    def passed(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def reason(self) -> str:
        errors = [str(finding) for finding in self.findings if finding.severity is Severity.ERROR]
        more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
        return "; ".join(errors[:3]) + more


@dataclass(frozen=True, slots=True)
class Rule(Generic[S]):
    """One thing a gate looks at. `remedy` is what to do about it, in one sentence for whoever is told."""

    name: str
    check: Callable[[S], Iterator[Finding]]
    remedy: str


def judge(gate: str, rules: Sequence[Rule[S]], subject: S) -> Verdict:
    findings = tuple(finding for rule in rules for finding in rule.check(subject))
    return Verdict(gate, findings, tuple(rule.name for rule in rules))


def error(rule: str, subject: str, expected: str, measured: str, sample: str = "") -> Finding:
    return Finding(rule, Severity.ERROR, subject, expected, measured, sample)
