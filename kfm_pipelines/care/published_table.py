"""The published table of a dataset under a policy."""

from kfm_pipelines.care.policies import RESERVED_COLUMNS, Policy
from kfm_pipelines.declarations import Column, Table
from kfm_pipelines.declarations.dataset import Dataset

RECORD, CELL, UNCERTAINTY, RECORDS = RESERVED_COLUMNS


def published_table(dataset: Dataset, policy: Policy) -> Table:
    """Columns in order: record, class, cell, coordinates, geometry, uncertainty, count, kept, withheld."""
    if not policy.masks or policy.raster_rule is not None:  # the table of a raster is made of the masked raster
        return dataset.table
    table = dataset.table
    places = (table.longitude_column, table.latitude_column, table.geometry_column)
    columns = [
        Column(name=RECORD, type="int64", nullable=False, description="Number of the row in this release, no more"),
        *([table.column(policy.class_column).model_copy(update={"source": None})] if policy.class_column else []),
        Column(name=CELL, type="string", nullable=True, description="H3 cell the place lies in", holds="place"),
        *(_nullable(table.column(name)) for name in places if name),
        Column(
            name=UNCERTAINTY,
            type="float64",
            nullable=True,
            unit="m",
            description="The true place is at most this far from the published one",
        ),
        Column(
            name=RECORDS,
            type="int64",
            nullable=False,
            description=f"How many records the row stands for; groups in multiples of {policy.minimum_count}",
        ),
        *(_nullable(column) for column in table.columns if column.name in policy.columns.keep),
        *(
            Column(name=column.name, type="string", nullable=False, description=f"{column.description}. Withheld")
            for column in table.columns
            if column.name in policy.columns.withhold
        ),
    ]
    return Table(
        primary_key=[RECORD],
        time_column=table.time_column if table.time_column in policy.columns.keep else None,
        longitude_column=table.longitude_column,
        latitude_column=table.latitude_column,
        geometry_column=table.geometry_column,
        columns=columns,
    )


def _nullable(column: Column) -> Column:
    return column.model_copy(update={"nullable": True, "source": None})
