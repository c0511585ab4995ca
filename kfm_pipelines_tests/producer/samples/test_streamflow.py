"""Sample readings are what the declaration asks for, and plausible."""

import io
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.declarations.dataset import Dataset, load_datasets
from kfm_pipelines.producer.samples.sample import hours
from kfm_pipelines.producer.samples.streamflow import GAUGES, streamflow_object, streamflow_table
from kfm_pipelines.settings import shipped_path

AT_03 = datetime(2025, 12, 4, 3, tzinfo=UTC)
ARROW_TYPES = {"string": pa.string(), "float64": pa.float64(), "timestamp": pa.timestamp("us", tz="UTC")}


@pytest.fixture(scope="module")
def streamflow() -> Dataset:
    return load_datasets(shipped_path("resources"))["usgs/streamflow"]


@pytest.fixture(scope="module")
def nine_days() -> pa.Table:
    return pa.concat_tables(streamflow_table(start) for start in hours(AT_03, 9 * 24))


def values(table: pa.Table, name: str) -> list[float]:
    return [value for value in table.column(name).to_pylist() if value is not None]


def test_the_columns_are_those_declared(streamflow: Dataset) -> None:
    _, parquet = streamflow_object(AT_03)
    schema = pq.read_table(io.BytesIO(parquet)).schema
    declared = [(column.name, ARROW_TYPES[column.type]) for column in streamflow.table.columns if not column.derived]
    assert [(field.name, field.type) for field in schema] == declared


def test_nulls_are_only_where_the_declaration_allows_them(streamflow: Dataset, nine_days: pa.Table) -> None:
    with_nulls = {name for name in nine_days.column_names if nine_days.column(name).null_count}
    assert with_nulls == {column.name for column in streamflow.table.columns if column.nullable}


def test_every_gauge_reports_each_quarter_of_the_hour_once() -> None:
    table = streamflow_table(AT_03 + timedelta(minutes=20))
    assert 12 <= len(GAUGES) <= 20
    times = [AT_03 + timedelta(minutes=minutes) for minutes in (0, 15, 30, 45)]
    expected = [(gauge.site_no, time) for gauge in GAUGES for time in times]
    assert list(zip(table["site_no"].to_pylist(), table["observed_at"].to_pylist(), strict=True)) == expected


def test_the_readings_are_plausible(nine_days: pa.Table) -> None:
    assert all(-102.05 <= longitude <= -94.59 for longitude in values(nine_days, "longitude"))
    assert all(36.99 <= latitude <= 40.00 for latitude in values(nine_days, "latitude"))
    assert all(0 < flow < 50_000 for flow in values(nine_days, "discharge_cfs"))
    assert all(0 < height < 40 for height in values(nine_days, "gage_height_ft"))
    assert set(nine_days["qualifier"].to_pylist()) == {"P", "A", "e"}


@pytest.mark.slow
def test_a_storm_passes_and_the_stage_follows_the_flow(nine_days: pa.Table) -> None:
    whole = nine_days.drop_null().sort_by("discharge_cfs")
    for gauge in GAUGES:
        rows = [row for row in whole.to_pylist() if row["site_no"] == gauge.site_no]
        assert rows[-1]["discharge_cfs"] > 3 * rows[0]["discharge_cfs"]
        heights = [row["gage_height_ft"] for row in rows]
        assert all(higher > lower - 0.1 for lower, higher in pairwise(heights))
        assert heights[-1] > heights[0] + 0.5


def test_other_hours_and_other_seeds_differ() -> None:
    assert streamflow_table(AT_03) != streamflow_table(AT_03 + timedelta(hours=1))
    assert streamflow_table(AT_03, seed=0) != streamflow_table(AT_03, seed=1)


def test_the_object_key_of_an_hour() -> None:
    assert streamflow_object(AT_03)[0] == "usgs/streamflow/2025/12/04/03/streamflow-20251204T03Z.parquet"
