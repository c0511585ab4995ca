"""Files of features have the box of each, by which readers skip what they do not look at; other files have none."""

import io
import json
from pathlib import Path

import duckdb
import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from kfm_pipelines.parquet.boxes import ROW_GROUP_SIZE, has_covering
from kfm_pipelines.parquet.geoparquet import file_metadata
from kfm_pipelines.parquet.parquet import read_parquet, rewrite_parquet, write_published
from kfm_pipelines_tests.fixtures.features import as_geoparquet, features_of, layer, plots
from kfm_pipelines_tests.fixtures.tables import STREAMFLOW, computed, rows

DATASET = layer("parquet")
SIDE = 200
BOX = {"xmin": ["bbox", "xmin"], "ymin": ["bbox", "ymin"], "xmax": ["bbox", "xmax"], "ymax": ["bbox", "ymax"]}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """A square of plots, five row groups of them."""
    west, south = (axis.ravel() for axis in np.meshgrid(np.linspace(-102, -95, SIDE), np.linspace(37, 40, SIDE)))
    return features_of(DATASET, as_geoparquet(plots(*shapely.box(west, south, west + 0.01, south + 0.01))))


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features") / "plots.parquet"
    path.write_bytes(write_published(table, DATASET.table, boxes=True))
    return path


def test_the_file_states_where_its_boxes_are(path: Path) -> None:
    geo = json.loads(pq.read_metadata(path).metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    assert geo["columns"]["geometry"]["covering"] == {"bbox": BOX}
    field = pq.read_schema(path).field("bbox")
    assert (field.nullable, [one.nullable for one in field.type]) == (False, [False] * 4)


def test_boxes_are_those_of_the_shapes_in_their_row(path: Path) -> None:
    table = pq.read_table(path)
    boxes = np.column_stack([table["bbox"].combine_chunks().field(edge) for edge in BOX])
    assert (boxes == shapely.bounds(shapely.from_wkb(table["geometry"].to_pylist()))).all()


def test_geopandas_reads_the_part_it_asks_for(path: Path, table: pa.Table) -> None:
    assert len(geopandas.read_parquet(path)) == SIDE**2
    part = geopandas.read_parquet(path, bbox=(-98.0, 38.0, -97.9, 38.1))
    shapes = shapely.from_wkb(table["geometry"].to_pylist())
    assert len(part) == shapely.intersects(shapes, shapely.box(-98.0, 38.0, -97.9, 38.1)).sum() > 0


def test_duckdb_reads_the_part_it_asks_for(path: Path, table: pa.Table) -> None:
    there = "bbox.xmin <= -97.9 AND bbox.xmax >= -98.0 AND bbox.ymin <= 38.1 AND bbox.ymax >= 38.0"
    with duckdb.connect() as connection:
        connection.execute("SET autoinstall_known_extensions = false")
        [(count,)] = connection.execute(f"SELECT count(*) FROM '{path}' WHERE {there}").fetchall()
    shapes = shapely.from_wkb(table["geometry"].to_pylist())
    assert count == shapely.intersects(shapes, shapely.box(-98.0, 38.0, -97.9, 38.1)).sum()


def test_most_row_groups_can_be_skipped(path: Path) -> None:
    """In the order of the curve each group is one part of the map."""
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    assert [group.num_rows for group in groups] == [ROW_GROUP_SIZE] * 4 + [SIDE**2 - 4 * ROW_GROUP_SIZE]
    columns = [{one.path_in_schema: one.statistics for one in map(group.column, range(7))} for group in groups]
    boxes = [
        shapely.box(one["bbox.xmin"].min, one["bbox.ymin"].min, one["bbox.xmax"].max, one["bbox.ymax"].max)
        for one in columns
    ]
    spots = shapely.points([(x, y) for x in np.linspace(-101.9, -95.1, 10) for y in np.linspace(37.1, 39.9, 10)])
    touched = sum(shapely.intersects(spots, box) for box in boxes)
    assert touched.min() == 1
    assert touched.mean() < 2


def test_our_reader_leaves_the_boxes_out_and_writing_again_changes_nothing(path: Path, table: pa.Table) -> None:
    data = path.read_bytes()
    assert read_parquet(data, "one").equals(table)
    assert rewrite_parquet(data, "one") == data
    assert write_published(read_parquet(data, "one"), DATASET.table, boxes=True) == data


def test_a_row_without_shape_has_no_box() -> None:
    nullable = layer("parquet").table.model_copy(
        update={"columns": [one.model_copy(update={"nullable": True}) for one in DATASET.table.columns]}
    )
    shapes = pa.array([shapely.to_wkb(shapely.Point(-98, 38)), None], pa.binary())
    two = pa.table({"plot": ["a", "b"], "acres": [1, 2], "geometry": shapes})
    data = write_published(two, nullable, boxes=True)
    boxes = pq.read_table(io.BytesIO(data))["bbox"].to_pylist()
    assert boxes == [{"xmin": -98.0, "ymin": 38.0, "xmax": -98.0, "ymax": 38.0}, None]
    assert rewrite_parquet(data, "one") == data
    none = write_published(two.slice(0, 0), nullable, boxes=True)
    assert read_parquet(none, "none").num_rows == 0


def test_a_column_that_is_not_of_this_form_is_a_column_like_others() -> None:
    """Its metadata alone hides nothing from us."""
    data = write_published(features_of(DATASET, as_geoparquet(plots())), DATASET.table, boxes=True)
    table = pq.read_table(io.BytesIO(data))
    texts = table.set_column(table.column_names.index("bbox"), "bbox", pa.array(["hidden"] * table.num_rows))
    for forged in (texts, table.replace_schema_metadata()):
        sink = io.BytesIO()
        pq.write_table(forged, sink)
        assert not has_covering(forged.schema)
        assert "bbox" in read_parquet(sink.getvalue(), "one").column_names


def test_files_of_other_datasets_are_written_as_before_there_were_features() -> None:
    table = computed(rows(), dataset=STREAMFLOW)
    before, metadata = io.BytesIO(), file_metadata(table, STREAMFLOW.table)
    plain = table.combine_chunks().replace_schema_metadata(metadata)
    options = {"compression": "zstd", "compression_level": 3, "version": "2.6", "row_group_size": 131_072}
    pq.write_table(plain, before, **options)
    assert b"covering" not in metadata["geo"]
    assert write_published(table, STREAMFLOW.table) == before.getvalue()
