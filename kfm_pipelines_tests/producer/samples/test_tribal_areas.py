"""The sample maps have the publisher's format with its oddities, and obviously invented nations."""

from collections import Counter, defaultdict
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.producer.samples.sample import tuesdays
from kfm_pipelines.producer.samples.tribal_areas import tribal_areas_object, tribal_areas_table
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.real_files import TRIBAL_AREAS, need_tribal_areas

TUESDAY = datetime(2025, 6, 24, tzinfo=UTC)
DATASET = declared()["drought/tribal-areas"]


@pytest.fixture(scope="module")
def year() -> pa.Table:
    return pa.concat_tables(tribal_areas_table(start) for start in tuesdays(TUESDAY, 52))


def test_the_object_key_of_a_day() -> None:
    assert tribal_areas_object(TUESDAY)[0] == "drought/tribal-areas/2025/06/24/USDM_2025-06-24.parquet"


def test_the_columns_have_the_publishers_names() -> None:
    assert tribal_areas_table(TUESDAY).column_names == [column.source for column in DATASET.table.columns]


@need_tribal_areas
def test_the_schema_is_that_of_the_real_files() -> None:
    real = pq.read_schema(TRIBAL_AREAS[-1])
    assert [(f.name, f.type) for f in tribal_areas_table(TUESDAY).schema] == [(f.name, f.type) for f in real]


def test_no_nation_in_it_exists(year: pa.Table) -> None:
    assert all(name.startswith("Example Nation ") for name in year["Name"].to_pylist())
    assert all(gnis.startswith("9990") for gnis in year["GNIS"].to_pylist())


def test_a_map_is_about_one_day() -> None:
    assert set(tribal_areas_table(TUESDAY)["Date"].to_pylist()) == {date(2025, 6, 24)}


def test_some_areas_are_a_reservation_and_trust_land_under_one_number(year: pa.Table) -> None:
    kinds: dict[str, set[str]] = defaultdict(set)
    for row in year.to_pylist():
        kinds[row["GNIS"]].add(row["LSAD"])
    assert Counter(len(found) for found in kinds.values()) == {1: 10, 2: 6}


def test_the_classes_of_an_area_do_not_overlap_but_for_rounding(year: pa.Table) -> None:
    shares: dict[tuple[str, ...], float] = defaultdict(float)
    for row in year.to_pylist():
        shares[row["GNIS"], row["LSAD"], row["Date"]] += row["USDM Class Area (%)"]
        assert row["USDM Class Area (%)"] > 0
        assert row["USDM Class Area (m^2)"] == pytest.approx(row["Total Area (m^2)"] * row["USDM Class Area (%)"] / 100)
    assert set(year["USDM Class"].to_pylist()) == {"D0", "D1", "D2", "D3", "D4"}
    assert 100 < max(shares.values()) < 100.01
