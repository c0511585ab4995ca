"""The box of each geometry in a column of its own (GeoParquet's covering), by which readers skip row groups.

It is made of the rows that are published, so of masked ones from their masked geometries. It is no column of the
dataset: our own reader leaves it out.
"""

import json
from typing import TYPE_CHECKING, Any

from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.vectors import COVERING

if TYPE_CHECKING:
    import pyarrow as pa

EDGES = ("xmin", "ymin", "xmax", "ymax")
# A spatial filter skips whole groups, so they are smaller than those of other tables.
ROW_GROUP_SIZE = 8 * 1024


def add_covering(table: "pa.Table", declared: Table) -> "pa.Table":
    """Adds the box of each geometry as the last column; null where there is no geometry."""
    import numpy as np
    import pyarrow as pa
    import shapely

    name = str(declared.geometry_column)
    shapes = shapely.from_wkb(table.column(name).to_numpy(zero_copy_only=False), on_invalid="ignore")
    boxes = shapely.bounds(shapes).reshape(-1, len(EDGES))
    without = np.isnan(boxes).any(axis=1)
    edges = [pa.array(np.where(without, 0.0, edge)) for edge in boxes.T]
    column = pa.StructArray.from_arrays(edges, fields=list(_kind()), mask=pa.array(without))
    field = pa.field(COVERING, _kind(), nullable=table.schema.field(name).nullable)
    return table.append_column(field, column)


def covering_metadata(schema: "pa.Schema") -> dict[str, Any]:
    """Returns where the box of the primary geometry is, if the table has it."""
    if COVERING not in schema.names or schema.field(COVERING).type != _kind():
        return {}
    return {"covering": {"bbox": {edge: [COVERING, edge] for edge in EDGES}}}


def has_covering(schema: "pa.Schema") -> bool:
    """Whether a file has a column of boxes just as we write it. One of any other form is a column like others."""
    expected = covering_metadata(schema)
    try:
        geo = json.loads((schema.metadata or {}).get(b"geo", b"{}"))
        return bool(expected) and geo["columns"][geo["primary_column"]]["covering"] == expected["covering"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return False


def _kind() -> "pa.DataType":
    import pyarrow as pa

    return pa.struct([pa.field(edge, pa.float64(), nullable=False) for edge in EDGES])
