"""Chooses the window of local files, whose names are seldom those of objects."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events import Window, resolve_event, window_of
from kfm_pipelines.events.shapes.s3 import S3Object, s3_notice
from kfm_pipelines.operations.datasets.check.pattern import example_of

if TYPE_CHECKING:
    import pyarrow as pa

_ANY_DAY = datetime(2025, 12, 4, tzinfo=UTC)


def window_of_objects(dataset: Dataset, files: Sequence[Path], table: "pa.Table") -> Window:
    """Returns the window in the path of a file, as far as it matches; else that of the earliest time in the table; else
    that of an example."""
    for path in sorted(files):
        if (found := _window_in_path(dataset, path)) is not None:
            return found
    earliest = _earliest(dataset, table)
    if earliest is not None:
        return window_of(earliest, dataset.key.window)
    example = example_of(dataset.input.object_pattern)
    return (_resolve(dataset, example) if example else None) or window_of(_ANY_DAY, dataset.key.window)


def _window_in_path(dataset: Dataset, path: Path) -> Window | None:
    """Tries the end of the path, one folder more each time, under the prefix or with it."""
    parts = path.absolute().parts[1:]
    for count in range(1, len(parts) + 1):
        end = "/".join(parts[-count:])
        for object_key in (end, f"{dataset.input.prefix}{end}"):
            if re.fullmatch(dataset.input.object_pattern, object_key, re.ASCII):
                return _resolve(dataset, object_key)
    return None


def _resolve(dataset: Dataset, object_key: str) -> Window | None:
    stored = S3Object(dataset.input.bucket, object_key, None, None, 0, None)
    try:
        event = resolve_event(s3_notice("trial", "created", stored, _ANY_DAY), Datasets({dataset.dataset: dataset}))
    except MessageRefused:
        return None
    return window_of(event.window_start, dataset.key.window)


def _earliest(dataset: Dataset, table: "pa.Table") -> datetime | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    name = dataset.table.time_column
    if name is None or name not in table.column_names or not pa.types.is_temporal(table.schema.field(name).type):
        return None
    value = pc.min(table.column(name)).as_py()
    if value is None:
        return None
    if not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
