"""Shipped declarations, changed for tests."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.settings import shipped


def resources_in(folder: Path) -> Path:
    """A copy of all that is shipped, to be changed."""
    return Path(shutil.copytree(shipped("resources"), folder / "resources"))


def change(path: Path, **changes: Any) -> None:
    """A file says this from now on, and of all else what it has said."""
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def without_geometry(dataset: Dataset) -> Dataset:
    """All columns of its table are in its objects."""
    columns = [column for column in dataset.table.columns if not column.derived]
    table = dataset.table.model_copy(update={"columns": columns, "geometry_column": None})
    return dataset.model_copy(update={"table": table})
