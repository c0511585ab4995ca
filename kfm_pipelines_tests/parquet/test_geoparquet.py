"""Published files open as maps and explain their columns, in programs that know nothing of this one."""

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
from kfm_pipelines.gates.reference_system import refuse_unless_wgs84
from kfm_pipelines.parquet.geoparquet import box_of, file_metadata
from kfm_pipelines.parquet.parquet import ROW_GROUP_SIZE, rewrite_parquet, write_published
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.mask import mask
from kfm_pipelines_tests.fixtures.care.register import sites
from kfm_pipelines_tests.fixtures.events.notices import declared
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


def test_geopandas_opens_it_without_being_told_anything(path: Path) -> None:
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
        said = connection.execute(
            f"SELECT decode(value)::JSON ->> '$.discharge_cfs.unit' FROM parquet_kv_metadata('{path}') "
            "WHERE decode(key) = 'kfm:columns'"
        ).fetchall()
    assert said == [("ft3/s",)]


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


def test_heights_are_told_and_have_no_box() -> None:
    high = shapely.Point(1, 2, 3), shapely.Point(4, 5)
    assert geo_of(*high) == {"geometry_types": ["Point", "Point Z"]}
    assert box_of(pa.chunked_array([shapely.to_wkb(high, output_dimension=3)])) == [1.0, 2.0, 4.0, 5.0]


@pytest.mark.parametrize("places", [(), (None, None), (b"no geometry",)])
def test_without_places_there_is_no_box(places: tuple[bytes | None, ...]) -> None:
    assert geo_of(*places) == {"geometry_types": []}


def test_an_endless_coordinate_makes_no_box() -> None:
    assert geo_of(shapely.Point(np.inf, 1)) == {"geometry_types": ["Point"]}


def test_a_table_without_places_says_nothing_of_them() -> None:
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
    shown = frame[frame["cell"].notna()]
    outlines = [shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(cell)]) for cell in shown["cell"]]
    assert len(shown) > 0
    assert frame["geometry"].notna().equals(frame["cell"].notna())
    assert shapely.equals_exact(shown.geometry, outlines, 1e-9, normalize=True).all()
    geo = json.loads(pq.read_metadata(io.BytesIO(data)).metadata[b"geo"])["columns"]["geometry"]
    assert geo["bbox"] == pytest.approx(shapely.total_bounds(outlines).tolist())
    assert rewrite_parquet(data, "one") == data
