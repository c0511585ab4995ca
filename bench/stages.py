"""A key taken through all stages in this process, as a run does it."""

from collections.abc import Callable, Iterable, Iterator

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.services import Services
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.handoff import Handoff
from kfm_pipelines.stores import Layout


def through_all_stages(batch: Batch, services: Services, dataset: Dataset, key: str) -> None:
    layout = Layout(dataset.pipeline)

    def kept(handoffs: Iterable[Handoff], path: Callable[[str, int], str]) -> Iterator[Handoff]:
        for handoff in handoffs:
            services.store.write(path(key, handoff.claim.epoch), handoff.data)
            yield handoff

    computed = list(kept(batch.compute([key]), layout.computed_table))
    batch.validate(list(kept(batch.mask(computed), layout.masked_table)))
    batch.stage([key])
    if key not in batch.publish([key]) and key not in batch.awaiting_review:
        raise SystemExit(f"{key} was not published: {batch.notes}")
