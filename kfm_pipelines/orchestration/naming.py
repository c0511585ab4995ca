"""What things of a dataset are called in Dagster."""

import dagster as dg

from kfm_pipelines.datasets import Dataset

STAGES = ("compute", "mask", "validate", "stage", "publish")


def group_of(dataset: Dataset) -> str:
    """Group, job and partitions of the dataset: `usgs/streamflow` → `usgs_streamflow`."""
    return dataset.pipeline.replace("-", "_")


def asset_key(dataset: Dataset, stage: str) -> dg.AssetKey:
    return dg.AssetKey([*dataset.dataset.split("/"), stage])


def partitions_of(dataset: Dataset) -> dg.DynamicPartitionsDefinition:
    """One partition for each canonical key that an event has named."""
    return dg.DynamicPartitionsDefinition(name=group_of(dataset))
