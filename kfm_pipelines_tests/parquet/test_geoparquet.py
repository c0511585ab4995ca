"""Published files describe their geometries for any reader, and points are the bytes that shapely writes."""

import io
import json
from pathlib import Path
from typing import Any

import duckdb
import geopandas
import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations import Column, Table
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.gates import judge_schema
from kfm_pipelines.parquet.geoparquet import box_of, coordinates_of, file_metadata, points_of, refuse_unless_wgs84
from kfm_pipelines.parquet.parquet import ROW_GROUP_SIZE, rewrite_parquet, write_published
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.compute.table import compute
from kfm_pipelines.stages.mask import mask
from kfm_pipelines_tests.fixtures.care.register import sites
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.gates.subjects import subject_of
from kfm_pipelines_tests.fixtures.tables import STREAMFLOW, computed, rows

PUBLISHED = write_published(computed(rows(), dataset=STREAMFLOW), STREAMFLOW.table)
BOX = [-97.8, 38.8, -97.6, 39.0]
SHAPES = Table(
    primary_key=["n"],
    geometry_column="place",
    columns=[
        Column(name="n", type="int64", nullable=False, description="Number"),
        Column(name="place", type="geometry", nullable=True, description="Where"),
        Column(name="other", type="geometry", nullable=True, description="Where else"),
    ],
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "published.parquet"
    path.write_bytes(PUBLISHED)
    return path


def geo_of(*places: shapely.Geometry | bytes | None) -> dict[str, Any]:
    values = [place if isinstance(place, bytes) else place and shapely.to_wkb(place) for place in places]
    column = pa.array(values, pa.binary())
    table = pa.table({"n": range(len(places)), "place": column, "other": pa.nulls(len(places), pa.binary())})
    geo = json.loads(file_metadata(table, SHAPES)["geo"])
    assert (geo["version"], geo["primary_column"]) == ("1.1.0", "place")
    assert geo["columns"]["other"] == {"encoding": "WKB", "geometry_types": []}
    place: dict[str, Any] = geo["columns"]["place"]
    assert place.pop("encoding") == "WKB"
    return place


def test_geopandas_opens_it_without_options(path: Path) -> None:
    frame = geopandas.read_parquet(path)
    assert (frame.geometry.name, frame.crs.to_authority()) == ("geometry", ("OGC", "CRS84"))
    assert np.allclose(frame.total_bounds, BOX)
    assert frame.geometry.x.tolist() == frame["longitude"].tolist()


def test_duckdb_reads_geometries_without_an_extension(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET autoinstall_known_extensions = false")
        kinds = dict(connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE '{path}')").fetchall())
        [(text,)] = connection.execute(f"SELECT ST_AsText(geometry) FROM '{path}' LIMIT 1").fetchall()
    assert kinds["geometry"] == "GEOMETRY('OGC:CRS84')"
    assert text == "POINT (-97.6 38.8)"


def test_arrow_and_duckdb_read_what_a_column_is_in(path: Path) -> None:
    field = pq.read_schema(path).field("discharge_cfs")
    assert field.metadata == {b"unit": b"ft3/s", b"description": b"Discharge"}
    with duckdb.connect() as connection:
        units = connection.execute(
            f"SELECT decode(value)::JSON ->> '$.discharge_cfs.unit' FROM parquet_kv_metadata('{path}') "
            "WHERE decode(key) = 'kfm:columns'"
        ).fetchall()
    assert units == [("ft3/s",)]


def test_the_box_is_around_the_rows_of_the_file(path: Path) -> None:
    geo = json.loads(pq.read_metadata(path).metadata[b"geo"])
    assert geo == {
        "version": "1.1.0",
        "primary_column": "geometry",
        "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"], "bbox": pytest.approx(BOX)}},
    }
    refuse_unless_wgs84(PUBLISHED, "what we publish ourselves")


def test_every_kind_is_named_once_and_in_order() -> None:
    line, square = shapely.LineString([(0, 1), (5, 2)]), shapely.box(-3, 0, 1, 1)
    assert geo_of(square, line, None, line) == {
        "geometry_types": ["LineString", "Polygon"],
        "bbox": [-3.0, 0.0, 5.0, 2.0],
    }


def test_geometries_with_heights_have_no_box() -> None:
    high = shapely.Point(1, 2, 3), shapely.Point(4, 5)
    assert geo_of(*high) == {"geometry_types": ["Point", "Point Z"]}
    assert box_of(pa.chunked_array([shapely.to_wkb(high, output_dimension=3)])) == [1.0, 2.0, 4.0, 5.0]


@pytest.mark.parametrize("places", [(), (None, None), (b"no geometry",)])
def test_without_places_there_is_no_box(places: tuple[bytes | None, ...]) -> None:
    assert geo_of(*places) == {"geometry_types": []}


def test_an_endless_coordinate_makes_no_box() -> None:
    assert geo_of(shapely.Point(np.inf, 1)) == {"geometry_types": ["Point"]}


def test_a_table_without_places_has_no_geo_metadata() -> None:
    table = Table(primary_key=["n"], columns=SHAPES.columns[:1])
    assert set(file_metadata(pa.table({"n": [1]}), table)) == {"kfm:columns"}


def test_the_same_rows_have_the_same_bytes_and_writing_again_changes_nothing() -> None:
    table = computed(rows(), dataset=STREAMFLOW)
    apart = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert write_published(apart, STREAMFLOW.table) == PUBLISHED
    assert rewrite_parquet(PUBLISHED, "one") == PUBLISHED


def test_rows_come_in_groups_with_their_smallest_and_largest_values() -> None:
    table = computed(rows(), dataset=STREAMFLOW).take(np.arange(ROW_GROUP_SIZE + 1) % 3)
    file = pq.ParquetFile(io.BytesIO(write_published(table, STREAMFLOW.table))).metadata
    assert [file.row_group(n).num_rows for n in range(file.num_row_groups)] == [131_072, 1]
    column = file.row_group(0).column(2)
    assert (column.path_in_schema, column.compression) == ("latitude", "ZSTD")
    assert (column.statistics.min, column.statistics.max) == (38.8, 39.0)


def test_masked_places_are_the_outlines_of_their_cells_and_so_is_the_box() -> None:
    dataset = declared()["heritage/sites"]
    policy = load_policy(shipped_path("resources"), dataset.policy)
    masked = mask(computed(sites(dataset), dataset=dataset), dataset, policy, b"k" * 32).table
    data = write_published(masked, published_table(dataset, policy))
    frame = geopandas.read_parquet(io.BytesIO(data))
    displayed = frame[frame["cell"].notna()]
    outlines = [shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(cell)]) for cell in displayed["cell"]]
    assert len(displayed) > 0
    assert frame["geometry"].notna().equals(frame["cell"].notna())
    assert shapely.equals_exact(displayed.geometry, outlines, 1e-9, normalize=True).all()
    geo = json.loads(pq.read_metadata(io.BytesIO(data)).metadata[b"geo"])["columns"]["geometry"]
    assert geo["bbox"] == pytest.approx(shapely.total_bounds(outlines).tolist())
    assert rewrite_parquet(data, "one") == data


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
    assert compute(STREAMFLOW, []).table.column_names == table.column_names


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
