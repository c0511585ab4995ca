"""Discharge in cubic metres a second, beside the cubic feet a second it is reported in."""

from typing import TYPE_CHECKING

from kfm_pipelines.errors import TransformFailed

if TYPE_CHECKING:
    import pyarrow as pa

CUBIC_FOOT_M3 = 0.028316846592  # exactly: 0.3048 ** 3


def metric_discharge(table: "pa.Table") -> "pa.Table":
    """Adds `discharge_m3s`. A discharge that is no number is left alone, for the schema gate to name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "discharge_m3s" in table.column_names:
        raise TransformFailed("the objects have a column discharge_m3s already, which the transform makes")
    if "discharge_cfs" not in table.column_names or table.schema.field("discharge_cfs").type != pa.float64():
        return table
    return table.append_column(
        pa.field("discharge_m3s", pa.float64()), pc.multiply(table.column("discharge_cfs"), CUBIC_FOOT_M3)
    )
