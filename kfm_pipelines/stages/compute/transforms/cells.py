"""The column of H3 cells on which tables are joined."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

CELL = "h3_cell"


def with_centres(table: "pa.Table") -> "pa.Table":
    """Adds longitude and latitude of the centre of each cell, rounded to a centimetre: the last digits of a projection
    differ between machines."""
    import h3
    import pyarrow as pa

    centres = [h3.cell_to_latlng(cell) for cell in table.column(CELL).to_pylist()]
    table = table.append_column("longitude", pa.array([round(east, 7) for _, east in centres], pa.float64()))
    return table.append_column("latitude", pa.array([round(north, 7) for north, _ in centres], pa.float64()))
