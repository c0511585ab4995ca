"""What is wrong with a key that a gate refused, what to do about it, and where to look at it."""

from typing import Any

from kfm_pipelines.gates.remedies import remedy_of
from kfm_pipelines.gates.verdict import WORST_FIRST
from kfm_pipelines.services import Services
from kfm_pipelines.stages.validate.report import quarantine_locations
from kfm_pipelines.state.verdicts import verdicts_of


def findings_with_remedies(services: Services, key: str, txn: int) -> list[dict[str, Any]]:
    """Every finding of one transaction, errors first, each with its remedy."""
    found = [
        {"gate": judged.gate, **finding, "fix": remedy_of(judged.gate, finding["rule"])}
        for judged in verdicts_of(services.database, key, txn)
        for finding in judged.findings
    ]
    return sorted(found, key=lambda finding: WORST_FIRST.index(finding["severity"]))


def find_refused_bytes(services: Services, key: str, txn: int) -> dict[str, Any] | None:
    """Where what was refused in this transaction is kept, and until when; None when it is not, or not any more."""
    return next((kept for kept in quarantine_locations(services, key) if kept["txn"] == txn), None)
