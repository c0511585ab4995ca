"""What is kept of a key's validation: the report of its gates, and the quarantined files of a refused key."""

from collections.abc import Iterable

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.facts import PUBLIC_KEY, SBOM
from kfm_pipelines.catalog.trust.signer import write_sealed
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.verdicts import (
    GateVerdict,
    Inspection,
    inspections_of,
    outdated_inspections,
    record_kept,
    record_removed,
    verdicts_of,
)
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import MASKED, STAGED


def write_validation_report(services: Services, dataset: Dataset, claim: Claim) -> None:
    """Writes the report from the verdicts on record; call after the last gate."""
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


def quarantine_files(services: Services, dataset: Dataset, claim: Claim) -> None:
    """Copies the masked and staged files of this claim to the restricted tier for a while."""
    store, folder = services.store, Layout(dataset.pipeline).refused_folder(claim.key, claim.epoch)
    record_kept(services.database, claim, folder, services.settings.red_days)
    place = f"{dataset.pipeline}/{claim.key}/{claim.epoch}"
    # The staged files contain the masked ones.
    for path in store.paths(f"{STAGED}/{place}") or store.paths(f"{MASKED}/{place}"):
        if not path.endswith((SBOM, PUBLIC_KEY)):  # the same for all releases
            store.write(f"{folder}/{path.rsplit('/', 1)[1]}", store.read(path))


def quarantine_locations(services: Services, key: str) -> list[dict[str, object]]:
    return [
        {"txn": kept.txn, "folder": f"{services.store.url}/{kept.folder}", "until": kept.until}
        for kept in inspections_of(services.database, key)
    ]


def remove_outdated(services: Services) -> int:
    return _remove(services, outdated_inspections(services.database))


def remove_replaced(services: Services, key: str, published_txn: int) -> int:
    """Removes what was quarantined before the transaction that published the key."""
    kept = inspections_of(services.database, key)
    return _remove(services, (one for one in kept if one.txn < published_txn))


def _remove(services: Services, inspections: Iterable[Inspection]) -> int:
    removed = 0
    for one in inspections:
        services.store.remove(one.folder)
        record_removed(services.database, one)
        removed += 1
    return removed
