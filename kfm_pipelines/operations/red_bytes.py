"""Bytes that a gate refused, kept in the restricted tier for a while, so that somebody can see what was wrong."""

from collections.abc import Iterable

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state import inspections
from kfm_pipelines.state.claims import Claim
from kfm_pipelines.state.inspections import Inspection
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import MASKED, STAGED


def keep_red(workshop: Workshop, dataset: Dataset, claim: Claim) -> None:
    """Set aside what this claim has masked and staged. What it was made from is not kept: that is where it came from.
    Noted before it is written, so that nothing is left that nobody knows of."""
    store, folder = workshop.store, Layout(dataset.pipeline).red(claim.key, claim.epoch)
    inspections.note_kept(workshop.database, claim, folder, workshop.settings.red_days)
    place = f"{dataset.pipeline}/{claim.key}/{claim.epoch}"
    # What is staged holds what is masked, so that alone is enough once it is there.
    for path in store.paths(f"{STAGED}/{place}") or store.paths(f"{MASKED}/{place}"):
        store.write(f"{folder}/{path.rsplit('/', 1)[1]}", store.read(path))


def where_kept(workshop: Workshop, key: str) -> list[dict[str, object]]:
    """For whoever wants to look: where, and until when."""
    return [
        {"txn": kept.txn, "folder": f"{workshop.store.url}/{kept.folder}", "until": kept.until}
        for kept in inspections.kept_of(workshop.database, key)
    ]


def remove_outdated(workshop: Workshop) -> int:
    return _remove(workshop, inspections.outdated(workshop.database))


def remove_replaced(workshop: Workshop, key: str, published: int) -> int:
    """The key is published by this transaction: nobody has to look at what came before it."""
    kept = inspections.kept_of(workshop.database, key)
    return _remove(workshop, (one for one in kept if one.txn < published))


def _remove(workshop: Workshop, kept: Iterable[Inspection]) -> int:
    removed = 0
    for one in kept:
        workshop.store.remove(one.folder)
        inspections.note_removed(workshop.database, one)
        removed += 1
    return removed
