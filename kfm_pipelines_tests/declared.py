"""Shipped declarations, changed for tests."""

from kfm_pipelines.datasets import Dataset


def without_geometry(dataset: Dataset) -> Dataset:
    """All columns of its table are in its objects."""
    columns = [column for column in dataset.table.columns if not column.derived]
    table = dataset.table.model_copy(update={"columns": columns, "geometry_column": None})
    return dataset.model_copy(update={"table": table})
