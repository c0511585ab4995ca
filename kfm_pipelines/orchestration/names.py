"""How a dataset appears in Dagster: the names of its parts, and metadata values."""

import base64
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import dagster as dg

from kfm_pipelines.declarations import Column, Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.orchestration.tags import RUN_LIMIT_TAG_PREFIX

STAGES = ("compute", "mask", "validate", "stage", "publish")


def group_of(dataset: Dataset) -> str:
    """Returns the name of the dataset's group, job and partitions: `usgs/streamflow` → `usgs_streamflow`."""
    return dataset.pipeline.replace("-", "_")


def asset_key(dataset: Dataset | str, stage: str) -> dg.AssetKey:
    name = dataset if isinstance(dataset, str) else dataset.dataset
    return dg.AssetKey([*name.split("/"), stage])


def partitions_of(dataset: Dataset) -> dg.DynamicPartitionsDefinition:
    """Returns partitions with one entry for each canonical key that an event has named."""
    return dg.DynamicPartitionsDefinition(name=group_of(dataset))


def pool_of(dataset: Dataset) -> str | None:
    """Returns the pool with one slot that every run of a serial dataset needs."""
    return f"serial_{group_of(dataset)}" if dataset.concurrency.serial else None


def limit_tags(dataset: Dataset, keys: Sequence[str]) -> dict[str, str]:
    """Returns the tag by which the run queue limits runs under a prefix; dagster.yaml reads the limit in its name."""
    limits = (dataset.concurrency.limit_of(key) for key in keys)
    return next(({f"{RUN_LIMIT_TAG_PREFIX}{limit.runs}": limit.prefix} for limit in limits if limit), {})


def column_schema(table: Table) -> dg.TableSchema:
    return dg.TableSchema([_table_column(column, table) for column in table.columns])


def location_metadata(store_url: str, path: str) -> dg.MetadataValue:
    """Returns a link if a browser can follow it, otherwise a path to copy."""
    address = f"{store_url}/{path}"
    parts = urlsplit(address)
    if parts.scheme in ("http", "https"):
        return dg.MetadataValue.url(address)
    return dg.MetadataValue.path(unquote(parts.path) if parts.scheme == "file" else address)


def image_metadata(png: bytes, caption: str) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{caption}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _table_column(column: Column, table: Table) -> dg.TableColumn:
    description = column.description + (f", in {column.unit}" if column.unit else "")
    unique = table.primary_key == [column.name]
    constraints = dg.TableColumnConstraints(nullable=column.nullable, unique=unique, other=[])
    return dg.TableColumn(column.name, column.type, description=description, constraints=constraints)
