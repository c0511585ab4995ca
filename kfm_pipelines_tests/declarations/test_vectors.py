"""A layer of features is declared so that it can be read and published, or refused with one sentence."""

from typing import Any

import pytest
from pydantic import ValidationError

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines_tests.fixtures.features import COLUMNS, TABLE, layer
from kfm_pipelines_tests.fixtures.tables import STREAMFLOW

POINT = {"name": "more", "type": "geometry", "nullable": True, "description": "Where else"}
DEGREES = [
    {"name": name, "type": "float64", "nullable": False, "description": name} for name in ("longitude", "latitude")
]
DERIVED = {
    "columns": [*COLUMNS[:2], *DEGREES, {**COLUMNS[2], "derived": "point"}],
    "longitude_column": "longitude",
    "latitude_column": "latitude",
}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"processor": "table"}, "input.format: geojson needs processor: vector"),
        (
            {"input": {"formats": {".csv": "csv"}}},
            "processor: vector reads geojson, geopackage, parquet, shapefile, not",
        ),
        ({"table": TABLE | {"geometry_column": None}}, "processor: vector needs table.geometry_column"),
        ({"table": TABLE | {"columns": [*COLUMNS, POINT]}}, "processor: vector makes one column of type geometry"),
        ({"table": TABLE | DERIVED}, "so it cannot be derived"),
        (
            {"table": TABLE | {"columns": [*COLUMNS, {**COLUMNS[1], "name": "bbox"}]}},
            "the column 'bbox' is added to what is published, so it cannot be declared",
        ),
        ({"vector": {"invalid": "ignore"}}, "Input should be 'refuse' or 'repair'"),
    ],
)
def test_a_layer_that_cannot_be_made_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        layer("geojson", **changes)


def test_what_shapes_the_bytes_changes_the_digest() -> None:
    plain = layer("geojson")
    assert len({one.digest for one in (plain, layer("geojson", vector={"invalid": "repair"}), layer("shapefile"))}) == 3
    assert layer("geojson", input={"limits": {"vertices": 5}}).digest == plain.digest


def test_rules_about_polygons_are_for_layers() -> None:
    rule = {"topology": {"overlaps": "error"}}
    assert layer("geojson", quality=rule).digest == layer("geojson").digest
    document = STREAMFLOW.model_dump(mode="json") | {"quality": rule}
    with pytest.raises(ValidationError, match=r"quality\.topology is about polygons, so it needs processor: vector"):
        Dataset.model_validate(document)
    with pytest.raises(ValidationError, match="needs overlaps, gaps or both"):
        layer("geojson", quality={"topology": {"tolerance_m2": 5}})
