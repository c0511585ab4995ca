"""The shadow tier: restricted files that candidates produced, kept while their comparisons count."""

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import Terminal
from kfm_pipelines.operations.canary.candidate import load_canary_candidate
from kfm_pipelines.operations.canary.tables import comparisons_with_current
from kfm_pipelines.services import Services
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.layout import SHADOW


def purge_shadows(services: Services) -> int:
    """Removes every file whose comparison no longer counts and returns how many."""
    kept = {path for dataset in services.datasets.values() for path in _current_shadows(services, dataset)}
    past = [path for path in services.store.paths(SHADOW) if path not in kept]
    folders_kept = {_key_folder(path) for path in kept}
    for path in past:
        # The folder too, or a file system would keep an empty one for every key.
        if _key_folder(path) in folders_kept:
            services.store.discard(path)
        else:
            services.store.remove(_key_folder(path))
    return len(past)


def clear_shadows(services: Services, dataset: Dataset) -> None:
    services.store.remove(Layout(dataset.pipeline).shadows())


def _key_folder(path: str) -> str:
    return path.rsplit("/", 1)[0]


def _current_shadows(services: Services, dataset: Dataset) -> list[str]:
    if dataset.canary is None:
        return []
    try:
        candidate = load_canary_candidate(services, dataset)
    except Terminal:  # with an invalid candidate no comparison counts
        return []
    compared = comparisons_with_current(services.database, dataset.dataset, candidate.digest)
    return [Layout(dataset.pipeline).shadow(one.key, candidate.version) for one in compared]
