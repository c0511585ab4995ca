"""A check finds what a derived dataset cannot be made of, and what it owes its upstreams."""

from datetime import date
from pathlib import Path

import pytest

from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.operations.datasets.check import check_declarations
from kfm_pipelines.operations.datasets.trial import run_trial
from kfm_pipelines_tests.fixtures.declarations import change, resources_in
from kfm_pipelines_tests.operations.datasets.check.test_declaration import errors, line_of, replace

ATLAS = "datasets/atlas-drought-streamflow.yaml"


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    return resources_in(tmp_path)


@pytest.mark.parametrize("alone", [True, False])
def test_an_unknown_upstream_is_reported_with_its_line(resources: Path, alone: bool) -> None:
    path = resources / ATLAS
    replace(path, ("dataset: usgs/streamflow", "dataset: usgs/streamflo"))
    [problem] = errors(check_declarations(resources, [path] if alone else []))
    line = line_of(path, "dataset: usgs/streamflo")
    assert problem.startswith(f"{path.name}:{line}: input.upstream.0.dataset: input.upstream: 'usgs/streamflo' is not")


def test_all_that_is_owed_to_upstreams_is_reported(resources: Path) -> None:
    change(resources / "policies/drought-streamflow.yaml", labels=["tk:attribution"])
    change(resources / "datasets/drought-tribal-areas.yaml", review="required")
    found = errors(check_declarations(resources, [resources / ATLAS]))
    assert [problem.partition("cannot be made of ")[2].partition(";")[0] for problem in found] == [
        "drought/tribal-areas: its releases need a review, so these need one too",
        "drought/tribal-areas: policy drought-streamflow@1 must have its labels too, and lacks "
        "care:collective-benefit, care:authority-to-control, care:responsibility, tk:multiple-communities, "
        "bc:provenance",
    ]


def test_a_derived_dataset_cannot_be_tried_on_files(resources: Path, tmp_path: Path) -> None:
    dataset = load_datasets(resources)["atlas/drought-streamflow"]
    with pytest.raises(SettingsInvalid, match="takes no files: it follows from what is published of usgs/streamflow, "):
        run_trial(resources, dataset, [tmp_path / "any.parquet"], date(2026, 11, 18), {})
