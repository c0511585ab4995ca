"""Reads features with GDAL, from bytes alone: it has no drivers but those of our formats, which look for nothing else.

Readers return geometries as WKB under their declared name, and on that field the system that the file states.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import InputUnreadable

if TYPE_CHECKING:
    import pyarrow as pa

SYSTEMS = b"kfm:systems"  # on the field of the geometry, as JSON
DRIVERS = frozenset({"GeoJSON", "GPKG", "ESRI Shapefile"})
ROWS_AT_ONCE = 20_000
_UNNAMED = "wkb_geometry"  # of a format that has no name for it
# What SQL in a file may reach, and an index that is not there is not made up.
_OPTIONS = {"OGR_SQLITE_ALLOW_EXTERNAL_ACCESS": "NO", "SHAPE_RESTORE_SHX": "NO"}


def geometry_name(dataset: Dataset) -> str:
    """Returns the name that the geometry of an object gets: the one that the declaration looks for."""
    column = dataset.table.column(str(dataset.table.geometry_column))
    return column.source or column.name


def read_layer(
    data: bytes, name: str, dataset: Dataset, kind: str, *, layer: str | None = None, **options: str
) -> "tuple[pa.Table, str | None]":
    """Returns the features with their geometry under its declared name, and the reference system of the layer."""
    import pyarrow as pa

    gdal = _gdal()
    wanted = None if dataset.input.columns == "all" else [one.source or one.name for one in dataset.table.columns]
    try:
        with (
            _silence(),
            gdal.raw.open_arrow(
                data, layer=layer, columns=wanted, batch_size=ROWS_AT_ONCE, use_pyarrow=True, **options
            ) as (facts, reader),
        ):
            dataset.input.limits.refuse(name, columns=len(facts["fields"]))
            batches = list(_limited(reader, name, dataset))
            table = pa.Table.from_batches(batches, schema=reader.schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, RuntimeError, ValueError, OverflowError, IndexError):  # pyogrio's own included
        raise unreadable(name, kind) from None
    found = facts["geometry_name"] or _UNNAMED
    if found not in table.column_names:
        raise InputUnreadable(f"{name} has rows without geometry, not features")
    names = [geometry_name(dataset) if one == found else one for one in table.column_names]
    return _plain(table).rename_columns(names), facts["crs"]


def with_systems(table: "pa.Table", systems: Sequence[object], dataset: Dataset) -> "pa.Table":
    """Notes on the geometry's field what the object states as its reference system, in every place that does."""
    import pyarrow as pa

    place = table.schema.get_field_index(geometry_name(dataset))
    if place < 0:
        return table  # the processor names it
    field = pa.field(table.schema.names[place], table.schema.types[place], metadata={SYSTEMS: json.dumps(systems)})
    return table.set_column(place, field, table.column(place))


def unreadable(name: str, kind: str) -> InputUnreadable:
    """Leaves out GDAL's own message, which may quote the file."""
    return InputUnreadable(f"{name} is not readable as {kind}")


def _limited(reader: Any, name: str, dataset: Dataset) -> "Iterator[pa.RecordBatch]":
    rows = size = 0
    for batch in reader:
        rows += batch.num_rows
        size += batch.nbytes
        dataset.input.limits.refuse(name, rows=rows, unpacked_bytes=size)
        yield batch


def _plain(table: "pa.Table") -> "pa.Table":
    """Returns the table without types and metadata that only GDAL gives a meaning."""
    import pyarrow as pa

    kinds = [
        field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        for field in table.schema
    ]
    columns = [column.cast(kind) for column, kind in zip(table.columns, kinds, strict=True)]
    return pa.table(columns, names=table.column_names)


@contextmanager
def _silence() -> Iterator[None]:
    """GDAL's warnings may quote the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def _gdal() -> Any:
    """Returns pyogrio without any driver but ours: others would recognise a file by its first bytes, whatever its
    format is declared to be, and follow what it refers to."""
    import pyogrio
    import pyogrio.errors
    import pyogrio.raw
    from pyogrio._ogr import _register_drivers

    others = sorted(pyogrio.list_drivers().keys() - DRIVERS)
    with _silence():
        pyogrio.set_gdal_config_options({**_OPTIONS, "OGR_SKIP": ",".join(others)})
        _register_drivers()  # drops those to be skipped
    if left := pyogrio.list_drivers().keys() - DRIVERS:
        raise RuntimeError(f"GDAL kept the drivers {', '.join(sorted(left))}")
    return pyogrio
