"""Transforms beyond the standard processor: pure functions over Arrow tables, one file each.

A transform gets the table that the objects of a key make, columns by their declared names, and gives the table that is
put into the declared form. To add one: a file here, its name in `declarations.transforms`, a line in TRANSFORMS.
"""

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kfm_pipelines.declarations import TransformName
from kfm_pipelines.errors import TransformFailed
from kfm_pipelines.stages.compute.transforms.metric_discharge import metric_discharge

if TYPE_CHECKING:
    import pyarrow as pa

Transform = Callable[["pa.Table"], "pa.Table"]

TRANSFORMS: dict[TransformName, Transform] = {"metric_discharge": metric_discharge}


def apply_transform(table: "pa.Table", name: TransformName | None) -> "pa.Table":
    """Whatever goes wrong, the sentence that says so has no value of the data in it. A pure function that failed once
    fails again, so nothing is retried, unless the machine had no memory left for it."""
    if name is None:
        return table
    try:
        return TRANSFORMS[name](table)
    except (TransformFailed, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - what it says may quote the data
        refusal = TransformFailed(f"the transform {name} failed with {type(error).__name__}")
        raise refusal.with_traceback(error.__traceback__) from None


def source_digest(name: TransformName | None) -> str | None:
    """Of the file the transform is written in: another text is another candidate."""
    if name is None:
        return None
    return hashlib.sha256(Path(inspect.getfile(TRANSFORMS[name])).read_bytes()).hexdigest()
