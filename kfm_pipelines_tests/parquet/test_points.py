"""Points: what is made of longitude and latitude, byte for byte what shapely makes."""

import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates import judge_schema
from kfm_pipelines.parquet.geoparquet import coordinates_of, points_of
from kfm_pipelines.stages.compute.table import compute
from kfm_pipelines_tests.fixtures.gates.subjects import subject_of
from kfm_pipelines_tests.fixtures.tables import STREAMFLOW, computed, rows


def column(*degrees: float | None) -> pa.ChunkedArray:
    """In two pieces, as columns that were put together are."""
    return pa.chunked_array([pa.array(part, pa.float64()) for part in (degrees[:1], degrees[1:])])


def test_points_are_what_shapely_writes_and_null_where_either_is() -> None:
    points = points_of(column(-97.5, 0.0, None, 1.0), column(38.25, -0.0, 2.0, None))
    expected = [shapely.to_wkb(shapely.Point(-97.5, 38.25)), shapely.to_wkb(shapely.Point(0.0, -0.0)), None, None]
    assert points.to_pylist() == expected
    assert len(points_of(column(), column())) == 0


def test_coordinates_are_read_back_wherever_the_column_begins() -> None:
    points = points_of(column(1.0, 2.0, 3.0), column(4.0, 5.0, 6.0))
    found = coordinates_of(points.slice(1))
    assert found is not None
    assert found.tolist() == [[2.0, 5.0], [3.0, 6.0]]


@pytest.mark.parametrize(
    "other",
    [
        shapely.to_wkb(shapely.Point(1, 2), byte_order=0),
        shapely.to_wkb(shapely.Point(1, 2, 3)),
        shapely.to_wkb(shapely.box(0, 0, 1, 1)),
        b"\x01\x02" + bytes(19),
        b"\x01",
    ],
)
def test_anything_else_is_left_to_others(other: bytes) -> None:
    point = points_of(column(1.0), column(2.0))
    assert coordinates_of(pa.concat_arrays([point, pa.array([other], pa.binary())])) is None


def test_a_key_has_its_points_in_the_declared_place() -> None:
    table = computed(rows(2), rows(1), dataset=STREAMFLOW)
    assert table.column_names == [column.name for column in STREAMFLOW.table.columns]
    field = table.schema.field("geometry")
    assert (field.type, field.nullable) == (pa.binary(), False)
    assert field.metadata == {b"description": b"Place of the gauge (WGS 84)"}
    shapes = shapely.from_wkb(table["geometry"].to_pylist())
    assert shapely.get_x(shapes).tolist() == table["longitude"].to_pylist()
    assert shapely.get_y(shapes).tolist() == table["latitude"].to_pylist()
    assert compute(STREAMFLOW, []).column_names == table.column_names


def test_a_zero_is_the_same_zero_in_both() -> None:
    [point] = computed(rows(1, longitude=[-0.0]), dataset=STREAMFLOW)["geometry"].to_pylist()
    assert point[5:13] == bytes(8)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (rows(longitude=pa.array(["a", "b", "c"])), [("column-type", "longitude")]),
        (rows().drop_columns(["latitude"]), [("column-present", "latitude")]),
        (rows(longitude=[float("nan"), 1.0, 2.0]), [("degrees-in-range", "longitude")]),
        (rows(longitude=[None, 1.0, 2.0]), [("no-nulls", "longitude"), ("no-nulls", "geometry")]),
    ],
)
def test_a_coordinate_that_is_not_as_declared_is_named_itself(table: pa.Table, found: list[tuple[str, str]]) -> None:
    verdict = judge_schema(subject_of(computed(table, dataset=STREAMFLOW), STREAMFLOW))
    assert [(finding.rule, finding.subject) for finding in verdict.findings] == found


def test_a_column_that_is_made_here_may_not_come() -> None:
    with pytest.raises(InputUnreadable, match="have a column 'geometry', which is made of coordinates"):
        computed(rows(geometry=pa.array([b"x"] * 3)), dataset=STREAMFLOW)
