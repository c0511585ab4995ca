"""For every rule of the schema gate, a table that keeps it and one that breaks it."""

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kfm_pipelines.gates import ApprovedSchema, TableSubject
from kfm_pipelines.gates.schema_diff import columns_of
from kfm_pipelines_tests.gates.case import Case
from kfm_pipelines_tests.gates.given import as_computed, subject_of
from kfm_pipelines_tests.stages.given import DATASET, WINDOW, minute, rows

APPROVED = columns_of(DATASET.table)


def good(table: pa.Table | None = None, **more: Any) -> TableSubject:
    return subject_of(as_computed(rows() if table is None else table), **more)


def approved(**columns: Any) -> TableSubject:
    """The good table, where readers were promised these columns besides, or without one that is None."""
    promised = {name: facts for name, facts in {**APPROVED, **columns}.items() if facts is not None}
    return good(approved=ApprovedSchema(3, promised, APPROVED))


def with_field(name: str, **changes: Any) -> TableSubject:
    table = as_computed(rows())
    place = table.schema.get_field_index(name)
    field = table.schema.field(place)
    if "unit" in changes:
        field = field.with_metadata({**field.metadata, b"unit": changes["unit"]})
    if "nullable" in changes:
        field = field.with_nullable(changes["nullable"])
    return subject_of(table.set_column(place, field, table.column(place)))


def in_system(name: str) -> TableSubject:
    """The good table in a file that says its places are in another system."""
    table = as_computed(rows())
    said = {b"geo": f'{{"columns": {{"geometry": {{"crs": "{name}"}}}}}}'.encode()}
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(said), sink)
    return replace(good(), data=sink.getvalue())


SCHEMA_CASES: Sequence[Case[TableSubject]] = (
    Case("column-present", good(), good(rows().drop_columns(["qualifier"]))),
    Case("column-type", good(), good(rows(site_no=pa.array([1, 2, 3])))),
    Case("column-declared", good(), good(rows(owner=["x", "y", "z"]))),
    Case("column-unit", good(), with_field("discharge_cfs", unit=b"m3/s")),
    Case("schema-approved", approved(), approved(qualifier=None)),
    Case("schema-approved", approved(), approved(discharge_cfs={**APPROVED["discharge_cfs"], "unit": "m3/s"})),
    Case("schema-approved", approved(), approved(velocity={"type": "float64", "nullable": True, "unit": "ft/s"})),
    Case("column-nullability", good(), with_field("qualifier", nullable=True)),
    Case("no-nulls", good(), good(rows(qualifier=["P", None, None]))),
    Case("time-in-window", good(), good(rows(1, observed_at=[WINDOW[0] - timedelta(microseconds=1)]))),
    Case(
        "time-order",
        good(rows(2, site_no=["a", "b"], observed_at=[minute(1), minute(0)])),
        good(rows(2, site_no=["a", "a"], observed_at=[minute(1), minute(0)])),
    ),
    Case("degrees-in-range", good(), good(rows(1, longitude=[180.1]))),
    Case("reference-system", in_system("EPSG:4326"), in_system("EPSG:26914")),
)
