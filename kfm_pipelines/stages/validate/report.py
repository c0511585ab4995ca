"""What is kept of a key's validation: the report of its gates, and the quarantined files of a refused key."""

from collections.abc import Iterable, Mapping, Sequence

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.facts import PUBLIC_KEY, SBOM
from kfm_pipelines.catalog.trust.signer import seal_for
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
    record_verdicts,
)
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import MASKED, STAGED


def validation_report(
    services: Services, dataset: Dataset, claim: Claim, verdicts: Sequence[GateVerdict]
) -> tuple[str, bytes]:
    """Returns where the report of all gates belongs, and the report."""
    document = {
        "key": claim.key,
        "dataset": dataset.dataset,
        "transaction": claim.epoch,
        "run": claim.owner,
        "passed": all(judged.passed for judged in verdicts),
        "gates": [_gate_entry(judged) for judged in verdicts],
    }
    path = Layout(dataset.pipeline).validation_report(claim.key, claim.epoch)
    return path, seal_for(services, path, document_bytes(document))


def record_refusal(
    services: Services,
    dataset: Dataset,
    claim: Claim,
    verdicts: Sequence[GateVerdict],
    *,
    earlier: Sequence[GateVerdict] = (),
) -> None:
    """Records the verdicts of a stage in which a gate is red, and writes the report of these and the earlier ones."""
    with services.database.transaction() as connection:
        record_verdicts(connection, dataset.dataset, {claim: verdicts})
    services.store.write(*validation_report(services, dataset, claim, [*earlier, *verdicts]))


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
        for kept in inspections_of(services.database, [key])
    ]


def remove_outdated(services: Services) -> int:
    return _remove(services, outdated_inspections(services.database))


def remove_replaced(services: Services, published: Mapping[str, int]) -> int:
    """Removes what was quarantined of each key before the transaction that published it."""
    kept = inspections_of(services.database, list(published))
    return _remove(services, (one for one in kept if one.txn < published[one.key]))


def _remove(services: Services, inspections: Iterable[Inspection]) -> int:
    removed = 0
    for one in inspections:
        services.store.remove(one.folder)
        record_removed(services.database, one)
        removed += 1
    return removed
