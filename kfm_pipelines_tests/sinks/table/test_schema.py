"""A table gets a new column when its schema is approved, and not before."""

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform, MonthTransform, YearTransform

from kfm_pipelines.declarations.dataset import Dataset, load_dataset
from kfm_pipelines.declarations.tables import IcebergTable
from kfm_pipelines.gates.schema_approval import Schema, record_approval, versions_of
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.sinks.flush import flush_now
from kfm_pipelines.sinks.table import sink
from kfm_pipelines.sinks.table.rows import rows_of_key
from kfm_pipelines.sinks.table.schema import CELL, partition_spec
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines_tests.fixtures.sinks import flush, publish_hours, the_table
from kfm_pipelines_tests.fixtures.sites.site import Site

NEW = "discharge_m3s"


def with_new_column(*arguments: Any) -> pa.Table:
    rows = rows_of_key(*arguments)
    return rows.append_column(pa.field(NEW, pa.float64()), pa.array([1.5] * len(rows)))


@pytest.mark.slow
def test_a_column_waits_for_its_approval(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_hours(site, [0])
    flush(site)
    publish_hours(site, [1])
    monkeypatch.setattr(sink, "rows_of_key", with_new_column)
    [problem] = flush_now(site.services, site.dataset, Sink.TABLE)
    assert f"the table has no column {NEW}, and no approved schema has it" in problem
    assert NEW not in the_table(site).schema().column_names

    with site.services.database.transaction() as connection:
        [known] = versions_of(connection, site.dataset.dataset)
    columns = {**known.columns, NEW: known.columns["discharge_cfs"]}
    wider = Schema(known.dataset, known.transform_version, "f" * 64, columns)
    record_approval(site.services.database, wider, "team:hydrology", "metres are wanted")
    flush(site)
    values = the_table(site).scan(selected_fields=(NEW,)).to_arrow().column(NEW)
    assert (values.null_count, set(values.to_pylist())) == (68, {None, 1.5})


@pytest.mark.slow
def test_columns_are_described(site: Site) -> None:
    publish_hours(site, [0])
    flush(site)
    fields = {field.name: field.doc for field in the_table(site).schema().fields}
    assert fields["kfm_key"] == "Key of the publication that the row is in"
    assert fields["site_no"] == "USGS site number"


@pytest.fixture(scope="module")
def streamflow() -> Dataset:
    return load_dataset(shipped_path("resources/datasets") / "usgs-streamflow.yaml")


@pytest.mark.parametrize(
    ("declared", "window", "transform"),
    [
        (IcebergTable(), "hour", MonthTransform()),
        (IcebergTable(), "day", YearTransform()),
        (IcebergTable(period="day"), "hour", DayTransform()),
    ],
)
def test_partitions_follow_the_windows(
    streamflow: Dataset, declared: IcebergTable, window: str, transform: Any
) -> None:
    key = streamflow.key.model_copy(update={"window": window})
    spec = partition_spec(streamflow.model_copy(update={"tables": declared, "key": key}))
    assert [field.transform for field in spec.fields] == [transform]


def test_partitions_by_cell_besides(streamflow: Dataset) -> None:
    spec = partition_spec(streamflow.model_copy(update={"tables": IcebergTable(cells=3)}))
    assert [field.name for field in spec.fields] == ["kfm_month", CELL]
