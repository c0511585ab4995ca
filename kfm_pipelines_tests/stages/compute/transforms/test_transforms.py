"""Transforms: one for each declared name, pure, and without values of the data in their errors."""

from typing import get_args

import pyarrow as pa
import pytest

from kfm_pipelines.declarations import TransformName
from kfm_pipelines.errors import TransformFailed
from kfm_pipelines.operations.canary.candidate import candidate_paths, load_candidate_file
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.compute.transforms import JOINS, TRANSFORMS, source_digest
from kfm_pipelines_tests.fixtures.tables import DATASET, STREAMFLOW, computed, rows

[CANDIDATE] = [load_candidate_file(path, STREAMFLOW) for path in candidate_paths(shipped_path("resources"))]


def test_every_name_has_a_transform_and_every_transform_a_name() -> None:
    assert {*TRANSFORMS, *JOINS} == set(get_args(TransformName))


def test_a_dataset_without_a_transform_has_no_digest_of_one() -> None:
    assert source_digest(None) is None


def test_discharge_in_cubic_metres_is_added() -> None:
    table = computed(rows(3, discharge_cfs=[0.0, 1.0, None]), dataset=CANDIDATE)
    assert table.column_names == [column.name for column in CANDIDATE.table.columns]
    assert table["discharge_cfs"].to_pylist() == [0.0, 1.0, None]
    assert table["discharge_m3s"].to_pylist() == [0.0, 0.028316846592, None]
    assert table.schema.field("discharge_m3s").metadata[b"unit"] == b"m3/s"
    now = computed(rows(3, discharge_cfs=[0.0, 1.0, None]), dataset=STREAMFLOW)
    assert table.drop_columns(["discharge_m3s"]).equals(now)


def test_a_discharge_that_is_no_number_is_left_for_the_gate() -> None:
    assert (
        "discharge_m3s" not in computed(rows(discharge_cfs=pa.array(["a", "b", "c"])), dataset=CANDIDATE).column_names
    )
    assert "discharge_m3s" not in computed(rows().drop_columns(["discharge_cfs"]), dataset=CANDIDATE).column_names


def test_a_column_that_the_transform_adds_must_not_be_in_the_objects() -> None:
    with pytest.raises(TransformFailed, match="the objects have a column discharge_m3s already"):
        computed(rows(discharge_m3s=[1.0, 2.0, 3.0]), dataset=CANDIDATE)


def test_a_failure_reveals_no_value_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: pa.Table) -> pa.Table:
        raise ValueError("38.79812")

    monkeypatch.setitem(TRANSFORMS, "metric_discharge", fails)
    with pytest.raises(TransformFailed) as refusal:
        computed(rows(), dataset=CANDIDATE)
    assert str(refusal.value) == "the transform metric_discharge failed with ValueError"


def test_changed_source_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped_digest = source_digest("metric_discharge")
    monkeypatch.setitem(TRANSFORMS, "metric_discharge", lambda table: table)
    assert source_digest("metric_discharge") not in (None, shipped_digest)


def test_objects_that_are_gone_need_no_transform() -> None:
    assert computed(dataset=CANDIDATE).num_rows == computed(dataset=DATASET).num_rows == 0
