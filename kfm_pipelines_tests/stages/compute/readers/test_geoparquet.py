"""GeoParquet of features may be in any reference system, as long as it states one."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines_tests.fixtures.features import as_geojson, as_geoparquet, features_of, layer, plots

DATASET = layer("parquet")
GOOD = as_geoparquet(plots(system="EPSG:26914"))
PLAIN = features_of(layer("geojson"), as_geojson(plots()))


def changed(*, field: dict[str, str] | None = None, drop: bool = False, **facts: Any) -> bytes:
    """The file with other metadata of its geometry. `...` removes a fact."""
    table = pq.read_table(io.BytesIO(GOOD))
    metadata = dict(table.schema.metadata)
    geo = json.loads(metadata.pop(b"geo"))
    column = geo["columns"]["geometry"] | facts
    geo["columns"]["geometry"] = {name: value for name, value in column.items() if value is not ...}
    place = table.schema.get_field_index("geometry")
    noted = pa.field("geometry", pa.binary(), metadata=field)
    table = table.set_column(place, noted, table.column(place).cast(pa.binary()))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata if drop else metadata | {b"geo": json.dumps(geo)}), sink)
    return sink.getvalue()


def test_a_file_in_another_system_is_reprojected_and_its_boxes_are_left_out() -> None:
    assert "bbox" in pq.read_schema(io.BytesIO(GOOD)).names
    assert features_of(DATASET, GOOD).equals(PLAIN)


def test_the_primary_column_is_taken_under_any_name() -> None:
    renamed = as_geoparquet(plots(system="EPSG:26914").rename_geometry("outline"))
    assert features_of(DATASET, renamed).equals(PLAIN)
    narrow = layer("parquet", input={"columns": "declared"})
    assert features_of(narrow, renamed).equals(PLAIN)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (changed(crs=None), "does not state the reference system of its coordinates$"),
        (changed(drop=True), "does not state the reference system of its coordinates$"),
        (changed(field={"crs": "EPSG:4326"}), "states two different reference systems$"),
        (changed(crs={"type": "nothing"}), "states a reference system that is not known$"),
        (changed(encoding="polygon"), "has geometries that are not WKB with straight edges$"),
        (changed(edges="spherical"), "has geometries that are not WKB with straight edges$"),
        (GOOD[:-20], "is not a readable Parquet file: it is damaged or truncated$"),
    ],
)
def test_a_bad_file_is_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=rf"^s3://kfm-ingest/0 {sentence}"):
        features_of(DATASET, data)


def test_without_a_system_of_its_own_it_is_in_wgs_84() -> None:
    """By the standard, that is what a missing `crs` means; these metres are no degrees."""
    with pytest.raises(InputUnreadable, match=r"4 features have a place outside of longitudes"):
        features_of(DATASET, changed(crs=...))


def test_a_file_without_geometry_is_one_sentence() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"PLOT": ["a"], "acres": [1]}), sink)
    with pytest.raises(InputUnreadable, match=r"0 has no column 'geometry' with geometries$"):
        features_of(DATASET, sink.getvalue())


@pytest.mark.parametrize("limit", ["rows", "columns"])
def test_limits_are_held(limit: str) -> None:
    with pytest.raises(InputUnreadable, match=rf"has \d {limit}"):
        features_of(layer("parquet", input={"limits": {limit: 1}}), GOOD)
