"""The register is obviously synthetic, has all three classes, and needs masking."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import h3
import pyarrow as pa
import pytest
from pyproj import Transformer

from kfm_pipelines.producer.samples.heritage import heritage_object, heritage_table
from kfm_pipelines.producer.samples.sample import months
from kfm_pipelines_tests.fixtures.events.notices import declared

DECEMBER = datetime(2025, 12, 1, tzinfo=UTC)
DATASET = declared()["heritage/sites"]


@pytest.fixture(scope="module")
def register() -> pa.Table:
    return heritage_table(DECEMBER)


def features(table: pa.Table) -> dict[str, Any]:
    """Sites by id, without the date of the last survey."""
    return {row["site_id"]: row for row in table.drop_columns(["surveyed_on"]).to_pylist()}


def cells(table: pa.Table, sensitivity: str, resolution: int) -> Counter[str]:
    return Counter(
        h3.latlng_to_cell(row["latitude"], row["longitude"], resolution)
        for row in table.to_pylist()
        if row["sensitivity"] == sensitivity
    )


def test_the_object_key_is_the_month_and_a_number_only() -> None:
    assert heritage_object(DECEMBER)[0] == "heritage/sites/2025/12/register-01.parquet"


def test_the_columns_are_those_declared(register: pa.Table) -> None:
    assert register.column_names == [column.name for column in DATASET.table.columns if not column.derived]


def test_no_site_can_be_mistaken_for_a_real_one(register: pa.Table) -> None:
    for row in register.to_pylist():
        number = int(row["site_id"].removeprefix("SYN-"))
        assert row["site_name"] == f"Synthetic site {number:03d}"
        assert row["directions"] is None or "the made-up crossing" in row["directions"]


@pytest.mark.parametrize("start", months(DECEMBER, 6))
def test_about_260_sites_in_three_classes(start: datetime) -> None:
    table = heritage_table(start)
    count = table.num_rows
    assert 250 <= count <= 270
    shares = {name: found / count for name, found in Counter(table["sensitivity"].to_pylist()).items()}
    assert shares == pytest.approx({"generalised": 0.6, "restricted": 0.3, "withheld": 0.1}, abs=0.07)


def test_every_site_is_well_inside_the_declared_extent(register: pa.Table) -> None:
    extent = DATASET.extent
    assert extent is not None
    assert all(extent.west < longitude < extent.east for longitude in register["longitude"].to_pylist())
    assert all(extent.south < latitude < extent.north for latitude in register["latitude"].to_pylist())


def test_easting_and_northing_match_the_coordinates(register: pa.Table) -> None:
    to_degrees = Transformer.from_crs("EPSG:32614", "EPSG:4326", always_xy=True)
    projected = [row for row in register.to_pylist() if row["easting"] is not None]
    assert len(projected) < register.num_rows
    for row in projected:
        again = to_degrees.transform(row["easting"], row["northing"])
        assert again == pytest.approx((row["longitude"], row["latitude"]), abs=2e-6)


def test_nulls_are_only_where_the_declaration_allows_them(register: pa.Table) -> None:
    with_nulls = {name for name in register.column_names if register.column(name).null_count}
    assert with_nulls == {column.name for column in DATASET.table.columns if column.nullable}


def test_some_cells_are_large_enough_to_show_and_some_too_small(register: pa.Table) -> None:
    for sensitivity, resolution in (("generalised", 5), ("restricted", 4), ("restricted", 3)):
        sizes = cells(register, sensitivity, resolution).values()
        assert sum(size >= 5 for size in sizes) >= 4
        assert sum(size < 5 for size in sizes) >= 4


def test_each_month_two_sites_are_added_and_two_removed() -> None:
    for earlier, later in zip(months(DECEMBER, 12), months(DECEMBER, 13)[1:], strict=True):
        before, after = features(heritage_table(earlier)), features(heritage_table(later))
        assert len(after.keys() - before.keys()) == len(before.keys() - after.keys()) == 2
        assert all(before[site] == after[site] for site in before.keys() & after.keys())
