"""What a scan found: the one result and finding type of all scans."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kfm_pipelines.gates import Finding, Severity, Verdict
from kfm_pipelines.gates.remedies import remedy_of


class ScanKind(StrEnum):
    NIGHTLY = "nightly"
    DEEP = "deep"
    EXTENTS = "extents"


@dataclass(frozen=True, slots=True)
class ScanFinding:
    """One finding of a scan; without a key it concerns the dataset as a whole."""

    key: str | None
    gate: str
    finding: Finding

    @property
    def fix(self) -> str:
        return remedy_of(self.gate, self.finding.rule)


@dataclass(frozen=True, slots=True)
class ScanResult:
    dataset: str
    kind: ScanKind
    keys: int = 0
    keys_left: int = 0  # not reached by a bounded scan
    keys_left_out: int = 0  # read, but not judged with the others
    findings: tuple[ScanFinding, ...] = ()
    note: str = ""  # why nothing was scanned
    data_docs: str = ""  # URL of the Data Docs

    @property
    def errors(self) -> int:
        return self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return self._count(Severity.WARN)

    def __str__(self) -> str:
        summary = self.note or f"{self.errors} errors and {self.warnings} warnings in {self.keys} keys"
        # The deep scan always starts with the newest keys, so it never reaches the others.
        reason = "older ones not reached" if self.kind is ScanKind.DEEP else "left for the next scan"
        left = f", {self.keys_left} {reason}" if self.keys_left else ""
        left_out = f", {self.keys_left_out} left out" if self.keys_left_out else ""
        return f"{self.dataset}: {summary}{left}{left_out}"

    def _count(self, severity: Severity) -> int:
        return sum(found.finding.severity is severity for found in self.findings)


def scan_findings(key: str, verdicts: Iterable[Verdict]) -> list[ScanFinding]:
    return [ScanFinding(key, verdict.gate, finding) for verdict in verdicts for finding in verdict.findings]


def already_running(dataset: str, kind: ScanKind) -> ScanResult:
    return ScanResult(dataset, kind, note=f"another {kind} scan of {dataset} is running")
