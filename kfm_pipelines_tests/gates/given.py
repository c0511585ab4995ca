"""What the gates are given in tests: a table with the fields as compute writes them, unless a test wants others."""

import hashlib
from datetime import datetime
from typing import Any

import pyarrow as pa

from kfm_pipelines.arrow_schemas import declared_schema
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.gates import TableSubject
from kfm_pipelines.stages.parquet import write_parquet
from kfm_pipelines_tests.stages.given import DATASET, WINDOW


def subject_of(
    table: pa.Table, dataset: Dataset = DATASET, window: tuple[datetime, datetime] = WINDOW, **more: Any
) -> TableSubject:
    """The table as it is."""
    data = write_parquet(table)
    digest = hashlib.sha256(data).hexdigest()
    return TableSubject(dataset, dataset.table, table, data, digest, window, **more)


def as_computed(table: pa.Table, dataset: Dataset = DATASET) -> pa.Table:
    """Units, descriptions and nullability on the columns that are as declared."""
    declared = declared_schema(dataset.table)
    fields = []
    for field in table.schema:
        known = declared.field(field.name) if field.name in declared.names else None
        has_nulls = table.column(field.name).null_count > 0
        as_declared = known is not None and known.type == field.type
        fields.append(known.with_nullable(known.nullable or has_nulls) if known and as_declared else field)
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))
