"""The shadow tier: what candidates made of published keys. Kept for whoever may look into the restricted tier, as long
as the comparison it belongs to counts."""

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import Terminal
from kfm_pipelines.operations.canary.candidate import candidacy_of
from kfm_pipelines.operations.canary.tables import comparisons_with_current
from kfm_pipelines.services import Workshop
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import SHADOW


def purge_shadows(workshop: Workshop) -> int:
    """Remove every file whose comparison is superseded: by another revision, another candidate, or by none."""
    kept = {path for dataset in workshop.datasets.values() for path in _counting(workshop, dataset)}
    past = [path for path in workshop.store.paths(SHADOW) if path not in kept]
    folders_kept = {_folder(path) for path in kept}
    for path in past:
        # The folder as well: on a file system it would stay behind empty, one for every key there ever was.
        if _folder(path) in folders_kept:
            workshop.store.discard(path)
        else:
            workshop.store.remove(_folder(path))
    return len(past)


def clear_shadows(workshop: Workshop, dataset: Dataset) -> None:
    workshop.store.remove(Layout(dataset.pipeline).shadows())


def _folder(path: str) -> str:
    """The one of the key."""
    return path.rsplit("/", 1)[0]


def _counting(workshop: Workshop, dataset: Dataset) -> list[str]:
    if dataset.canary is None:
        return []
    try:
        candidacy = candidacy_of(workshop, dataset)
    except Terminal:  # the candidate is not right, so no comparison counts
        return []
    compared = comparisons_with_current(workshop.database, dataset.dataset, candidacy.digest)
    return [Layout(dataset.pipeline).shadow(one.key, candidacy.version) for one in compared]
