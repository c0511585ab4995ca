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
    store, layout = workshop.store, Layout(dataset.pipeline)
    inspections.note_kept(workshop.database, claim, workshop.settings.red_days)
    place = f"{dataset.pipeline}/{claim.key}/{claim.epoch}"
    # What is staged holds what is masked, so that alone is enough once it is there.
    for path in store.paths(f"{STAGED}/{place}") or store.paths(f"{MASKED}/{place}"):
        store.write(f"{layout.red(claim.key, claim.epoch)}/{path.rsplit('/', 1)[1]}", store.read(path))


def where_kept(workshop: Workshop, key: str) -> list[dict[str, object]]:
    """For whoever wants to look: where, and until when."""
    return [
        {"txn": kept.txn, "folder": f"{workshop.store.url}/{_folder(workshop, kept)}", "until": kept.until}
        for kept in inspections.kept_of(workshop.database, key)
        if kept.dataset in workshop.datasets
    ]


def remove_outdated(workshop: Workshop) -> int:
    return _remove(workshop, inspections.outdated(workshop.database))


def remove_of_key(workshop: Workshop, key: str) -> int:
    """The key is published: there is nothing left to look at."""
    return _remove(workshop, inspections.kept_of(workshop.database, key))


def _remove(workshop: Workshop, kept: Iterable[Inspection]) -> int:
    removed = 0
    for one in kept:
        if one.dataset in workshop.datasets:
            workshop.store.remove(_folder(workshop, one))
            inspections.note_removed(workshop.database, one)
            removed += 1
    return removed


def _folder(workshop: Workshop, kept: Inspection) -> str:
    return Layout(workshop.datasets[kept.dataset].pipeline).red(kept.key, kept.txn)
