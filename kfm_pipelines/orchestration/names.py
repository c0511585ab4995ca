"""What things of a dataset are called in Dagster."""

from collections.abc import Sequence

import dagster as dg

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.orchestration.tags import RUN_LIMIT_TAG_PREFIX

STAGES = ("compute", "mask", "validate", "stage", "publish")


def group_of(dataset: Dataset) -> str:
    """Group, job and partitions of the dataset: `usgs/streamflow` → `usgs_streamflow`."""
    return dataset.pipeline.replace("-", "_")


def asset_key(dataset: Dataset, stage: str) -> dg.AssetKey:
    return dg.AssetKey([*dataset.dataset.split("/"), stage])


def partitions_of(dataset: Dataset) -> dg.DynamicPartitionsDefinition:
    """One partition for each canonical key that an event has named."""
    return dg.DynamicPartitionsDefinition(name=group_of(dataset))


def pool_of(dataset: Dataset) -> str | None:
    """The pool with one slot that every run of a serial dataset needs, whoever asks for the run."""
    return f"serial_{group_of(dataset)}" if dataset.concurrency.serial else None


def limit_tags(dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    """The tag by which the run queue counts runs under a prefix; the number is in its name, for dagster.yaml."""
    limits = (dataset.concurrency.limit_of(key) for key in keys)
    return next(({f"{RUN_LIMIT_TAG_PREFIX}{limit.runs}": limit.prefix} for limit in limits if limit), {})
