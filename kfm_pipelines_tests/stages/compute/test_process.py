"""What a processor makes of a key's objects, and what it leaves out."""

from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.events import window_of
from kfm_pipelines.gates.verdict import DUPLICATES, OUTSIDE_AREA, OUTSIDE_WINDOW
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.stages.compute.process import drop_rows_outside_window, process, process_key
from kfm_pipelines.stages.compute.result import Computed
from kfm_pipelines_tests.fixtures.gates.subjects import KANSAS_AREA
from kfm_pipelines_tests.fixtures.tables import DATASET, STREAMFLOW, WINDOW, rows, stored

CLIPPED = STREAMFLOW.model_copy(update={"outside_aoi": "clip"})
MIXED = rows(4, longitude=[-97.6, -76.7, -98.0, -76.7])


def made(*tables: pa.Table, dataset: Any = CLIPPED, area: Area = KANSAS_AREA) -> Computed:
    return process(dataset, [stored(table, str(number)) for number, table in enumerate(tables)], lambda: area)


def test_rows_outside_the_area_are_left_out_where_it_is_declared() -> None:
    computed = made(MIXED)
    assert computed.table["longitude"].to_pylist() == [-97.6, -98.0]
    assert computed.left_out == {OUTSIDE_AREA: 2}
    assert made(rows(2)).left_out == {}


@pytest.mark.parametrize("outside_aoi", [None, "refuse", "warn"])
def test_otherwise_they_stay_for_the_gate(outside_aoi: str | None) -> None:
    computed = made(MIXED, dataset=STREAMFLOW.model_copy(update={"outside_aoi": outside_aoi}))
    assert (computed.table.num_rows, computed.left_out) == (4, {})


def test_a_table_without_places_is_not_clipped() -> None:
    assert made(MIXED.drop_columns(["longitude"])).table.num_rows == 4


def test_a_correction_that_moves_a_gauge_out_of_the_area_takes_it_away() -> None:
    newest = {"on_conflict": "newest", "order_by": [{"column": "qualifier", "ranks": ["P", "A"]}]}
    table = CLIPPED.table.model_validate(CLIPPED.table.model_dump() | newest)
    first, second = rows(1), rows(1, longitude=[-76.7], qualifier=["A"])
    for order in permutations([first, second]):
        computed = made(*order, dataset=CLIPPED.model_copy(update={"table": table}))
        assert (computed.table.num_rows, computed.left_out) == (0, {OUTSIDE_AREA: 1})


def test_what_is_left_out_does_not_depend_on_the_order_or_the_split_of_objects() -> None:
    whole = pa.concat_tables([MIXED, MIXED.slice(1, 2), MIXED.slice(1, 1)])
    expected = made(whole)
    assert expected.left_out == {DUPLICATES: 3, OUTSIDE_AREA: 2}
    parts = [whole.slice(0, 1), whole.slice(1, 4), whole.slice(5)]
    for order in permutations(parts):
        computed = made(*order)
        assert computed.left_out == expected.left_out
        assert write_parquet(computed.table) == write_parquet(expected.table)


def test_rows_settled_by_a_correction_are_no_duplicates() -> None:
    newest = {"on_conflict": "newest", "order_by": [{"column": "qualifier", "ranks": ["P", "A"]}]}
    dataset = DATASET.model_copy(update={"table": DATASET.table.model_validate(DATASET.table.model_dump() | newest)})
    computed = made(rows(3), rows(3, qualifier=["A"] * 3), rows(1), dataset=dataset)
    assert (computed.table.num_rows, computed.left_out) == (3, {DUPLICATES: 1})


def test_the_area_is_loaded_only_to_clip() -> None:
    def missing() -> Area:
        raise AssertionError("loaded")

    assert process(STREAMFLOW, [stored(rows(1))], missing).table.num_rows == 1
    everywhere = Area("everywhere", shapely.box(-180, -90, 180, 90))
    assert made(MIXED, area=everywhere).left_out == {}


HOUR = window_of(WINDOW[0], "hour")
ENDS = [WINDOW[0] - timedelta(microseconds=1), WINDOW[0], WINDOW[1] - timedelta(microseconds=1), WINDOW[1]]


def clipped(*times: datetime | None, **table: Any) -> Computed:
    given = Computed(rows(len(times), observed_at=list(times)), left_out={"exact duplicates": 2})
    declared = STREAMFLOW.table.model_copy(update={"outside_window": "clip", **table})
    return drop_rows_outside_window(STREAMFLOW.model_copy(update={"table": declared}), given, HOUR)


def test_rows_of_other_windows_are_left_out_and_counted() -> None:
    made = clipped(*ENDS)
    assert made.table["observed_at"].to_pylist() == ENDS[1:3]
    assert made.left_out == {"exact duplicates": 2, OUTSIDE_WINDOW: 2}


@pytest.mark.parametrize("second", [[ENDS[3]], [ENDS[2], ENDS[3]]])
def test_an_object_without_a_row_of_the_window_is_for_the_gate_to_refuse(second: list[datetime]) -> None:
    key = f"usgs-streamflow:kansas_statewide:none:{HOUR.label}:v1-0-0"
    good, other = rows(1, observed_at=[ENDS[1]]), rows(len(second), observed_at=second)
    objects = [stored(good, "one"), stored(other, "two")]
    made = process_key(STREAMFLOW, objects, lambda: KANSAS_AREA, key)
    is_misplaced = len(second) == 1
    assert (made.table.num_rows, made.left_out) == (2, {} if is_misplaced else {OUTSIDE_WINDOW: 1})


@pytest.mark.parametrize(
    ("times", "table"),
    [
        ((ENDS[0], ENDS[3]), {}),  # an object in the wrong place is for the gate to refuse
        ((ENDS[1], None), {}),
        ((ENDS[1], ENDS[3]), {"outside_window": "refuse"}),
        ((ENDS[1], ENDS[3]), {"time_column": None}),
        ((ENDS[1], ENDS[3]), {"time_column": "elsewhere"}),
        (
            (ENDS[1], ENDS[3]),
            {"columns": [one.model_copy(update={"type": "date"}) for one in STREAMFLOW.table.columns]},
        ),
    ],
)
def test_no_row_is_left_out_otherwise(times: tuple[datetime | None, ...], table: dict[str, Any]) -> None:
    made = clipped(*times, **table)
    assert (made.table.num_rows, made.left_out) == (2, {"exact duplicates": 2})
