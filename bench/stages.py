"""A key taken through all stages in this process, as a run does it."""

from kfm_pipelines.stages.batch import Batch


def through_all_stages(batch: Batch, key: str) -> None:
    batch.compute([key])
    batch.mask([key])
    batch.validate([key])
    batch.stage([key])
    if key not in batch.publish([key]) and key not in batch.awaiting_review:
        raise SystemExit(f"{key} was not published: {batch.notes}")
