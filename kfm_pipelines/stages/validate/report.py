"""The validation report of a key: what every gate looked at in one transaction, and what it found."""

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.trust.signer import write_sealed
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.verdicts import GateVerdict, verdicts_of
from kfm_pipelines.stores import Layout


def write_validation_report(services: Services, dataset: Dataset, claim: Claim) -> None:
    """Written when the last gate has spoken, from what the gates have put on record."""
    verdicts = verdicts_of(services.database, claim.key, claim.epoch)
    document = {
        "key": claim.key,
        "dataset": dataset.dataset,
        "transaction": claim.epoch,
        "run": claim.owner,
        "passed": all(judged.passed for judged in verdicts),
        "gates": [_gate_entry(judged) for judged in verdicts],
    }
    path = Layout(dataset.pipeline).validation_report(claim.key, claim.epoch)
    write_sealed(services, path, document_bytes(document))


def _gate_entry(verdict: GateVerdict) -> dict[str, object]:
    described: dict[str, object] = {
        "gate": verdict.gate,
        "digest": verdict.digest,
        "passed": verdict.passed,
        "rules": list(verdict.rules),
        "findings": [dict(finding) for finding in verdict.findings],
    }
    return described if verdict.report is None else {**described, "suite": dict(verdict.report)}
