"""Stands for a dataset that is not declared yet: a reader then leaves everything as the object has it."""

from typing import Any

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.inputs import Dialect, Input, Limits
from kfm_pipelines.declarations.tables import Column


def blank_dataset(known: str, dialect: Dialect | None = None, geometry: str | None = None) -> Dataset:
    """`geometry` is the column of geometries in a file of features."""
    dialect = dialect or Dialect()
    read: dict[str, Any] = {"format": known, "formats": {}, "csv": dialect, "timezone": None, "columns": "all"}
    shape: dict[str, Any] = {"name": geometry, "source": None}
    shapes = [Column.model_construct(None, **shape)] if geometry else []
    columns: dict[str, Any] = {"columns": shapes, "geometry_column": geometry}
    parts: dict[str, Any] = {
        "dataset": "new/dataset",
        "processor": "vector" if geometry else "table",
        "input": Input.model_construct(None, **read, limits=Limits()),
        "table": Table.model_construct(None, **columns),
    }
    return Dataset.model_construct(None, **parts)
