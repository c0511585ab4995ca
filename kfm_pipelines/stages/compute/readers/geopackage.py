"""Reads a GeoPackage. SQLite looks at its tables first: GDAL reads a layer only if it is a plain table, because a view
or a virtual table can compute anything while it is read."""

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.vectors import Vector
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.stages.compute.readers.features import read_layer, unreadable, with_systems

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "a GeoPackage"
_MAGIC = b"SQLite format 3\x00"
_APPLICATION_IDS = (b"GPKG", b"GP10", b"GP11")
_MAX_STEPS = 50  # of a million instructions each
_UNDEFINED = (-1, 0)  # reference systems that are none

_SPECIAL = """
    SELECT count(*) FROM sqlite_master
    WHERE (name LIKE 'gpkg!_%' ESCAPE '!') AND (type = 'view' OR sql LIKE 'create virtual%')
"""
_LAYERS = """
    SELECT c.table_name, c.srs_id, g.srs_id FROM gpkg_contents c
    JOIN gpkg_geometry_columns g ON g.table_name = c.table_name
    WHERE c.data_type = 'features' AND (:layer IS NULL OR c.table_name = :layer) ORDER BY c.table_name
"""
_PLAIN_TABLE = """
    SELECT count(*) FROM sqlite_master
    WHERE name = :layer COLLATE NOCASE AND type = 'table' AND sql NOT LIKE 'create virtual%'
    AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(:layer) WHERE hidden <> 0)
"""


def read_geopackage(data: bytes, name: str, dataset: Dataset) -> "pa.Table":
    if not data.startswith(_MAGIC) or data[68:72] not in _APPLICATION_IDS:
        raise unreadable(name, KIND)
    data = data[:18] + b"\x01\x01" + data[20:]  # without a write-ahead log, which would be a file beside it
    layer, defined = _find_layer(data, name, (dataset.vector or Vector()).layer)
    table, system = read_layer(data, name, dataset, KIND, layer=layer, LIST_ALL_TABLES="NO")
    return with_systems(table, [system if defined else None], dataset)


def _find_layer(data: bytes, name: str, wanted: str | None) -> tuple[str, bool]:
    """Returns the name of the layer, and whether its reference system is defined."""
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(data)
            connection.execute("PRAGMA trusted_schema = OFF")
            steps = iter(range(_MAX_STEPS))
            connection.set_progress_handler(lambda: int(next(steps, None) is None), 1_000_000)
            if connection.execute(_SPECIAL).fetchone() != (0,):
                raise unreadable(name, KIND)
            layers = connection.execute(_LAYERS, {"layer": wanted}).fetchall()
            plain = [connection.execute(_PLAIN_TABLE, {"layer": layer}).fetchone() == (1,) for layer, *_ in layers]
    except (sqlite3.Error, OverflowError):
        raise unreadable(name, KIND) from None
    if len(layers) != 1:
        what = "features in no layer" if wanted is None else f"no layer {wanted!r}, which vector.layer names"
        many = f"{len(layers)} layers; vector.layer must name one of them"
        raise InputUnreadable(f"{name} has {many if layers else what}")
    [(layer, one, other)] = layers
    if not all(plain):
        raise InputUnreadable(f"{name} has a layer that is not a plain table")
    if one != other:
        raise InputUnreadable(f"{name} states two different reference systems")
    return str(layer), one not in _UNDEFINED
