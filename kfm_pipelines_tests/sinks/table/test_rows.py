"""The cells by which rows are partitioned never say more about a place than what is published."""

import h3
import pyarrow as pa
import pytest
import shapely

from kfm_pipelines.declarations.dataset import Dataset, load_dataset
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.sinks.table.rows import cells_of

TOPEKA = (39.05, -95.68)


@pytest.fixture(scope="module")
def streamflow() -> Dataset:
    return load_dataset(shipped_path("resources/datasets") / "usgs-streamflow.yaml")


def test_cells_of_points(streamflow: Dataset) -> None:
    rows = pa.table({"latitude": [TOPEKA[0], None], "longitude": [TOPEKA[1], None]})
    assert cells_of(rows, streamflow, 3).to_pylist() == [h3.latlng_to_cell(*TOPEKA, 3), None]


def test_cells_of_published_cells(streamflow: Dataset) -> None:
    """Their parents at most, and not the cell of a coordinate beside them."""
    fine, coarse = h3.latlng_to_cell(*TOPEKA, 5), h3.latlng_to_cell(*TOPEKA, 2)
    rows = pa.table({"cell": [fine, coarse, None], "latitude": [1.0] * 3, "longitude": [1.0] * 3})
    assert cells_of(rows, streamflow, 3).to_pylist() == [h3.cell_to_parent(fine, 3), coarse, None]


def test_cells_of_shapes(streamflow: Dataset) -> None:
    shape = shapely.box(TOPEKA[1] - 0.01, TOPEKA[0] - 0.01, TOPEKA[1] + 0.01, TOPEKA[0] + 0.01)
    rows = pa.table({"geometry": pa.array([shapely.to_wkb(shape), None], pa.binary())})
    assert cells_of(rows, streamflow, 3).to_pylist() == [h3.latlng_to_cell(*TOPEKA, 3), None]
    assert cells_of(pa.table({"value": [1]}), streamflow, 3).to_pylist() == [None]
