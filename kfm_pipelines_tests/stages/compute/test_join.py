"""Streamflow and drought of a week on H3 cells, against a join made by hand."""

from datetime import date, datetime
from itertools import permutations
from typing import Any

import h3
import pyarrow as pa
import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.events.notice import release_uri
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.stages.compute.join import join_upstreams
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines.stages.compute.table import compute
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.tables import minute, rows, stored

ATLAS = declared()["atlas/drought-streamflow"]
TOPEKA = (39.067, -95.649)
ENGLEWOOD = (37.031, -100.208)
CELL_OF_TOPEKA, CELL_OF_ENGLEWOOD = (h3.latlng_to_cell(*place, 5) for place in (TOPEKA, ENGLEWOOD))
SHARED_CELL = "85260b17fffffff"  # of the Iowa and the Sac and Fox reservations, and of Iowa trust land
IOWA, SAC_AND_FOX, KICKAPOO = "00479831", "00479832", "00479833"


def released(dataset: str, label: str, table: pa.Table) -> SourceObject:
    key = f"{dataset.replace('/', '-')}:somewhere:none:{label}:v1-0-0"
    return SourceObject(release_uri(dataset, key), write_parquet(table))


def hour(label: str, *readings: tuple[str, tuple[float, float], datetime, float | None]) -> SourceObject:
    """A release of streamflow: gauge, place, time and discharge of each reading."""
    sites, places, times, flows = (list(column) for column in zip(*readings, strict=True))
    latitudes, longitudes = (list(axis) for axis in zip(*places, strict=True))
    table = rows(
        len(sites), site_no=sites, latitude=latitudes, longitude=longitudes, observed_at=times, discharge_cfs=flows
    )
    return released("usgs/streamflow", label, table)


def map_of(*shares: tuple[str, str, str, float]) -> SourceObject:
    """A release of drought: area, kind, class and share of each row."""
    names = ("gnis", "lsad", "usdm_class", "class_area_percent")
    columns: dict[str, Any] = {name: [share[place] for share in shares] for place, name in enumerate(names)}
    types = (pa.string(), pa.string(), pa.string(), pa.float64())
    table = pa.table({name: pa.array(columns[name], kind) for name, kind in zip(names, types, strict=True)})
    days = pa.array([date(2025, 12, 2)] * len(shares), pa.date32())
    return released("drought/tribal-areas", "2025-12-02", table.append_column("valid_on", days))


EARLY = hour("2025-12-04T00Z", ("1", TOPEKA, minute(0), 100.0), ("2", TOPEKA, minute(15), 250.0))
LATER = hour("2025-12-04T01Z", ("1", TOPEKA, minute(60), 40.0), ("3", ENGLEWOOD, minute(60), None))
DROUGHT = map_of(
    (IOWA, "86", "D0", 20.0),
    (IOWA, "86", "D2", 50.0),
    (IOWA, "OT", "D1", 100.0),
    (SAC_AND_FOX, "86", "D0", 99.5),
    (KICKAPOO, "XX", "D4", 100.0),  # no such kind of area is declared
    ("00000001", "86", "D4", 100.0),  # and this one is not in Kansas
)


def by_cell(*objects: SourceObject) -> dict[str, dict[str, Any]]:
    facts = compute(ATLAS, objects).table.drop_columns(["longitude", "latitude", "geometry"]).to_pylist()
    return {row.pop("h3_cell"): row for row in facts}


def test_a_cell_has_its_gauges_and_the_areas_that_touch_it() -> None:
    found = by_cell(EARLY, LATER, DROUGHT)
    assert set(found) == {CELL_OF_TOPEKA, CELL_OF_ENGLEWOOD, "85260b03fffffff", "85260b13fffffff", SHARED_CELL}
    assert found[CELL_OF_TOPEKA] == {
        "gauges": 2,
        "readings": 3,
        "discharge_mean_cfs": (100.0 + 250.0 + 40.0) / 3,
        "discharge_min_cfs": 40.0,
        "areas_in_drought": 0,
        "worst_class": None,
        "drought_index": None,
    }
    assert found[SHARED_CELL] == {
        "gauges": 0,
        "readings": 0,
        "discharge_mean_cfs": None,
        "discharge_min_cfs": None,
        "areas_in_drought": 3,
        "worst_class": "D2",
        "drought_index": 200.0,  # trust land, all of it D1; the reservations have 1 * 20 + 3 * 50 = 170, and 99.5
    }
    assert found["85260b03fffffff"]["areas_in_drought"] == 2
    assert found["85260b03fffffff"]["drought_index"] == 170.0


def test_a_gauge_without_a_discharge_is_a_gauge() -> None:
    here = by_cell(LATER)[CELL_OF_ENGLEWOOD]
    assert (here["gauges"], here["readings"], here["discharge_mean_cfs"]) == (1, 0, None)


def test_what_was_not_published_is_unknown_and_not_nothing() -> None:
    assert by_cell(EARLY)[CELL_OF_TOPEKA]["areas_in_drought"] is None
    assert by_cell(DROUGHT)[SHARED_CELL]["gauges"] is None


def test_a_map_without_drought_is_known() -> None:
    assert by_cell(EARLY, map_of())[CELL_OF_TOPEKA]["areas_in_drought"] == 0


def test_a_row_stands_at_the_centre_of_its_cell() -> None:
    table = compute(ATLAS, [EARLY]).table
    latitude, longitude = h3.cell_to_latlng(CELL_OF_TOPEKA)
    assert table["latitude"].to_pylist() == pytest.approx([latitude], abs=1e-7)
    assert table["longitude"].to_pylist() == pytest.approx([longitude], abs=1e-7)
    assert table.column_names == [column.name for column in ATLAS.table.columns]


def test_the_order_of_releases_does_not_matter() -> None:
    thirds = hour("2025-12-04T02Z", *(("1", TOPEKA, minute(120 + n), 0.1 + n / 3) for n in range(7)))
    orders = permutations([EARLY, LATER, thirds, DROUGHT])
    assert len({write_parquet(compute(ATLAS, order).table) for order in orders}) == 1


def test_without_any_row_there_is_an_empty_table_in_the_declared_form() -> None:
    table = compute(ATLAS, [map_of()]).table
    assert table.num_rows == 0
    assert table.column_names == [column.name for column in ATLAS.table.columns]


def in_cells(column: str) -> Any:
    """The shipped dataset, as if streamflow had a column with its cells."""
    streamflow, drought = ATLAS.input.upstream
    cells = streamflow.cells.model_copy(update={"longitude": None, "latitude": None, "cell": column})
    upstream = [streamflow.model_copy(update={"cells": cells}), drought]
    return ATLAS.model_copy(update={"input": ATLAS.input.model_copy(update={"upstream": upstream})})


@pytest.mark.parametrize("column", ["h3_cell", "cell"])
def test_an_upstream_may_have_cells_already(column: str) -> None:
    table = rows(2, **{column: pa.array([CELL_OF_TOPEKA, None], pa.string())})
    joined = join_upstreams(in_cells(column), [released("usgs/streamflow", "2025-12-04T00Z", table)])
    assert joined["h3_cell"].to_pylist() == [CELL_OF_TOPEKA]


@pytest.mark.parametrize("wrong", [h3.latlng_to_cell(*TOPEKA, 6), "somewhere"])
def test_cells_of_another_resolution_are_refused(wrong: str) -> None:
    table = rows(1, cell=pa.array([wrong], pa.string()))
    with pytest.raises(
        InputUnreadable, match=r"^usgs/streamflow: 'cell' must have H3 cells of resolution 5"
    ) as refusal:
        join_upstreams(in_cells("cell"), [released("usgs/streamflow", "2025-12-04T00Z", table)])
    assert wrong not in str(refusal.value)


def test_a_release_without_the_columns_that_give_the_cells_is_refused() -> None:
    source = released("usgs/streamflow", "2025-12-04T00Z", rows().drop_columns(["longitude"]))
    with pytest.raises(InputUnreadable, match="its releases have no column 'longitude', which gives the cells"):
        join_upstreams(ATLAS, [source])


def test_a_release_that_is_no_parquet_is_refused() -> None:
    with pytest.raises(InputUnreadable, match=r"kfm://usgs-streamflow/"):
        compute(ATLAS, [SourceObject(release_uri("usgs/streamflow", "a:b:c:d:e"), b"no table")])


def test_an_object_in_a_bucket_is_no_release() -> None:
    assert join_upstreams(ATLAS, [stored(rows())]).num_rows == 0
