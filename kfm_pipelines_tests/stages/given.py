"""What the tests of this folder start from: the declared dataset, and small tables of it with chosen values."""

import io
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kfm_pipelines.arrow_schemas import declared_schema
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.stages.compute import SourceObject, compute
from kfm_pipelines_tests.declared import without_geometry
from kfm_pipelines_tests.events.given import declared
from kfm_pipelines_tests.site import START

STREAMFLOW = declared()["usgs/streamflow"]


DATASET = without_geometry(STREAMFLOW)
COLUMNS = tuple(column.name for column in DATASET.table.columns)
WINDOW = (START, START + timedelta(hours=1))


def rows(count: int = 3, **columns: list[Any] | pa.Array) -> pa.Table:
    """A good table of that many rows; a given column replaces, or is added to, the declared ones."""
    good: dict[str, Any] = {
        "site_no": [f"0686650{number}" for number in range(count)],
        "site_name": ["Smoky Hill River"] * count,
        "latitude": [38.8 + number / 10 for number in range(count)],
        "longitude": [-97.6 - number / 10 for number in range(count)],
        "observed_at": [START + timedelta(minutes=number) for number in range(count)],
        "discharge_cfs": [310.0 + number for number in range(count)],
        "gage_height_ft": [4.1] * count,
        "qualifier": ["P"] * count,
    }
    return pa.table(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values, _type_of(name))
            for name, values in (good | columns).items()
        }
    )


def _type_of(name: str) -> pa.DataType | None:
    schema = declared_schema(DATASET.table)
    return schema.field(name).type if name in schema.names else None


def stored(table: pa.Table, name: str = "one") -> SourceObject:
    """The table as somebody else's Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return SourceObject(f"s3://kfm-ingest/{name}", sink.getvalue())


def computed(*tables: pa.Table, dataset: Dataset = DATASET) -> pa.Table:
    return compute(dataset, [stored(table, str(number)) for number, table in enumerate(tables)])


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)
