"""The shadow tier: what candidates made of published keys. Kept for whoever may look into the restricted tier, as long
as the comparison it belongs to counts."""

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import Terminal
from kfm_pipelines.operations.canary.candidate import load_canary_candidate
from kfm_pipelines.operations.canary.tables import comparisons_with_current
from kfm_pipelines.services import Services
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import SHADOW


def purge_shadows(services: Services) -> int:
    """Remove every file whose comparison is superseded: by another revision, another candidate, or by none."""
    kept = {path for dataset in services.datasets.values() for path in _current_shadows(services, dataset)}
    past = [path for path in services.store.paths(SHADOW) if path not in kept]
    folders_kept = {_key_folder(path) for path in kept}
    for path in past:
        # The folder as well: on a file system it would stay behind empty, one for every key there ever was.
        if _key_folder(path) in folders_kept:
            services.store.discard(path)
        else:
            services.store.remove(_key_folder(path))
    return len(past)


def clear_shadows(services: Services, dataset: Dataset) -> None:
    services.store.remove(Layout(dataset.pipeline).shadows())


def _key_folder(path: str) -> str:
    """The one of the key."""
    return path.rsplit("/", 1)[0]


def _current_shadows(services: Services, dataset: Dataset) -> list[str]:
    if dataset.canary is None:
        return []
    try:
        candidacy = load_canary_candidate(services, dataset)
    except Terminal:  # the candidate is not right, so no comparison counts
        return []
    compared = comparisons_with_current(services.database, dataset.dataset, candidacy.digest)
    return [Layout(dataset.pipeline).shadow(one.key, candidacy.version) for one in compared]
