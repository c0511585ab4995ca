"""Transforms beyond the standard processor: pure functions over Arrow tables, one file each.

A transform takes the table of a key's objects, with declared column names, and returns the table that is brought into
the declared form. A join takes the tables of the upstreams of a derived dataset, on H3 cells. To add one: a file here,
its name in `declarations.tables`, a line in TRANSFORMS or JOINS.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import TransformName
from kfm_pipelines.errors import TransformFailed
from kfm_pipelines.stages.compute.transforms.drought_streamflow import drought_streamflow
from kfm_pipelines.stages.compute.transforms.metric_discharge import metric_discharge

if TYPE_CHECKING:
    import pyarrow as pa

Transform = Callable[["pa.Table"], "pa.Table"]

Join = Callable[["Mapping[str, pa.Table]"], "pa.Table"]

TRANSFORMS: dict[TransformName, Transform] = {"metric_discharge": metric_discharge}
JOINS: dict[TransformName, Join] = {"drought_streamflow": drought_streamflow}


def apply_transform(table: "pa.Table", name: TransformName) -> "pa.Table":
    """Raises TransformFailed, which is not retried, without any value from the data in its message."""
    return _apply(name, lambda: TRANSFORMS[name](table))


def apply_join(tables: "Mapping[str, pa.Table]", name: TransformName) -> "pa.Table":
    """Joins the tables of upstreams, given by dataset. Raises TransformFailed likewise."""
    return _apply(name, lambda: JOINS[name](tables))


def _apply(name: TransformName, transform: Callable[[], "pa.Table"]) -> "pa.Table":
    try:
        return transform()
    except (TransformFailed, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - its message may quote the data
        refusal = TransformFailed(f"the transform {name} failed with {type(error).__name__}")
        raise refusal.with_traceback(error.__traceback__) from None


def source_digest(name: TransformName | None) -> str | None:
    """Digest of the transform's source file: changed code is a new candidate."""
    if name is None:
        return None
    return hashlib.sha256(Path(inspect.getfile((TRANSFORMS | JOINS)[name])).read_bytes()).hexdigest()
