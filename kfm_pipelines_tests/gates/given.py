"""What the tests of this folder start from: subjects of the gates, with chosen tables, thresholds and precedents."""

import hashlib
from datetime import datetime
from typing import Any

import pyarrow as pa

from kfm_pipelines.arrow_schemas import declared_schema
from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.published import published_table
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Column, Quality, Table
from kfm_pipelines.gates.subject import Precedents, TableSubject
from kfm_pipelines.local.samples import SAMPLES
from kfm_pipelines.settings import shipped
from kfm_pipelines.stages.compute import SourceObject, compute
from kfm_pipelines.stages.mask import mask
from kfm_pipelines.stages.parquet import write_parquet
from kfm_pipelines_tests.events.given import declared
from kfm_pipelines_tests.site import START
from kfm_pipelines_tests.stages.given import DATASET, WINDOW, rows

HASH = "a" * 64
OUTLINES = Dataset.model_validate(
    DATASET.model_dump(exclude={"table", "quality"})
    | {
        "table": Table(
            primary_key=["number"],
            geometry_column="outline",
            columns=[
                Column(name="number", type="int64", nullable=False, description="Number"),
                Column(name="outline", type="geometry", nullable=True, description="Where it is"),
            ],
        ).model_dump()
    }
)


def subject(
    table: pa.Table | None = None,
    *,
    dataset: Dataset = DATASET,
    quality: dict[str, Any] | None = None,
    published: Table | None = None,
    may_show: bool = True,
    **precedents: Any,
) -> TableSubject:
    """Of the streamflow dataset unless another is given, with these thresholds and no others."""
    dataset = dataset.model_copy(update={"quality": Quality.model_validate(quality or {})})
    return TableSubject(
        dataset=dataset,
        published=published or dataset.table,
        table=rows() if table is None else table,
        data=b"",
        content_hash=HASH,
        window=WINDOW,
        may_show=may_show,
        precedents=Precedents(**precedents),
    )


def subject_of(
    table: pa.Table, dataset: Dataset = DATASET, window: tuple[datetime, datetime] = WINDOW, **more: Any
) -> TableSubject:
    """The table as it is, with the bytes it would be written as."""
    data = write_parquet(table)
    return TableSubject(dataset, dataset.table, table, data, hashlib.sha256(data).hexdigest(), window, **more)


def as_computed(table: pa.Table, dataset: Dataset = DATASET) -> pa.Table:
    """Units, descriptions and nullability on the columns that are as declared, as compute puts them there."""
    declared_fields = declared_schema(dataset.table)
    fields = []
    for field in table.schema:
        known = declared_fields.field(field.name) if field.name in declared_fields.names else None
        has_nulls = table.column(field.name).null_count > 0
        as_declared = known is not None and known.type == field.type
        fields.append(known.with_nullable(known.nullable or has_nulls) if known and as_declared else field)
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def outlines(*wkb: bytes | None) -> TableSubject:
    """Of a dataset with geometries."""
    numbers = list(range(1, len(wkb) + 1))
    return subject(pa.table({"number": numbers, "outline": pa.array(wkb, pa.binary())}), dataset=OUTLINES)


def released(name: str, data: bytes | None = None, start: datetime = START, **changes: Any) -> TableSubject:
    """A dataset's object, or its sample, as it would be published under the shipped declaration and policy."""
    dataset = declared()[name]
    policy = load_policy(shipped("resources"), dataset.policy)
    sample = SAMPLES[name]
    [window] = sample.windows(start, 1)
    table = compute(dataset, [SourceObject("s3://kfm-ingest/one", data or sample.make(window)[1])])
    return TableSubject(
        dataset=dataset,
        published=published_table(dataset, policy),
        table=mask(table, dataset, policy, b"a secret for nothing but tests!!").table,
        data=b"",
        content_hash=HASH,
        window=(window, window),
        **{"may_show": policy.is_open} | changes,
    )


def with_value(table: pa.Table, column: str, value: object, row: int = 0) -> pa.Table:
    """The table with one value changed."""
    values = table.column(column).to_pylist()
    values[row] = value
    place = table.column_names.index(column)
    return table.set_column(place, table.schema.field(column), pa.array(values, table.schema.field(column).type))
