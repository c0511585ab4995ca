"""Candidates: whole declarations that agree with the dataset they are for, and the keys that try them."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm_pipelines.declarations.dataset import Dataset, load_datasets
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.operations.canary.candidate import (
    candidate_paths,
    is_canary_key,
    load_candidate,
    load_candidate_file,
)
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.declarations import change, resources_in

CANDIDATE = "candidates/usgs-streamflow@v1-1-0.yaml"
KEYS = [f"usgs-streamflow:kansas_statewide:none:{number:05}:v1-0-0" for number in range(10_000)]


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    """The shipped files, with the candidate named."""
    copy = resources_in(tmp_path)
    change(copy / "datasets/usgs-streamflow.yaml", canary={"transform_version": "v1-1-0", "fraction": 0.1})
    return copy


def part(path: Path, section: str, **changes: Any) -> None:
    change(path, **{section: {**yaml.safe_load(path.read_text())[section], **changes}})


def load(resources: Path) -> Dataset:
    dataset = load_datasets(resources)["usgs/streamflow"]
    assert dataset.canary is not None
    return load_candidate(resources, dataset, dataset.canary)


def test_the_shipped_candidate_is_the_declaration_with_one_more_column() -> None:
    datasets = load_datasets(shipped_path("resources"))
    now = datasets["usgs/streamflow"]
    [path] = candidate_paths(shipped_path("resources"))
    candidate = load_candidate_file(path, now)
    assert now.canary is None
    assert (candidate.transform, candidate.key.transform_version) == ("metric_discharge", "v1-1-0")
    columns = [column for column in candidate.table.columns if column.name != "discharge_m3s"]
    without = candidate.model_copy(
        update={
            "transform": None,
            "key": now.key,
            "table": candidate.table.model_copy(update={"columns": columns}),
        }
    )
    assert without == now


def test_a_named_candidate_is_loaded(resources: Path) -> None:
    assert load(resources).key.transform_version == "v1-1-0"


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda path: path.unlink(), r"^usgs/streamflow: canary names candidates/usgs-.*, which is not there$"),
    "another dataset": (lambda path: change(path, dataset="usgs/other"), "dataset must be that of usgs/streamflow"),
    "another source": (lambda path: part(path, "key", source="usgs"), "key.source must be that of usgs/streamflow"),
    "another area": (lambda path: part(path, "key", aoi="ohio"), "key.aoi must be that of"),
    "another resolution": (lambda path: part(path, "key", h3_res="7"), "key.h3_res must be that of"),
    "another window": (lambda path: part(path, "key", window="day"), "key.window must be that of"),
    "another version": (lambda path: part(path, "key", transform_version="v9"), "the file must be named after it"),
    "another input": (lambda path: part(path, "input", max_bytes=5), "input must be that of usgs/streamflow"),
    "no review where one is required": (
        lambda path: change(path.parents[1] / "datasets/usgs-streamflow.yaml", review="required"),
        "review must be required, as it is of usgs/streamflow",
    ),
    "a canary": (
        lambda path: change(path, canary={"transform_version": "v2", "fraction": 1.0}),
        "a candidate has no canary of its own",
    ),
    "an unknown transform": (
        lambda path: change(path, transform="guess"),
        "transform: Input should be 'metric_discharge'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_that_does_not_agree_is_refused_in_one_sentence(resources: Path, case: str) -> None:
    breaks, reason = WRONG[case]
    breaks(resources / CANDIDATE)
    with pytest.raises(DeclarationInvalid, match=reason) as refusal:
        load(resources)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_candidate_is_refused(resources: Path) -> None:
    stray = resources / "candidates/nothing@v2.yaml"
    shutil.copyfile(resources / CANDIDATE, stray)
    assert stray in candidate_paths(resources)
    with pytest.raises(DeclarationInvalid, match=r"^nothing@v2\.yaml: is for no declared dataset"):
        load_candidate_file(stray, None)
    same = stray.rename(stray.with_name("usgs-streamflow@v1-0-0.yaml"))
    part(same, "key", transform_version="v1-0-0")
    with pytest.raises(DeclarationInvalid, match="has version v1-0-0 already, so it is no candidate"):
        load_candidate_file(same, load_datasets(resources)["usgs/streamflow"])


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9])
def test_so_many_keys_are_chosen(fraction: float) -> None:
    share = sum(is_canary_key(key, "v2", fraction) for key in KEYS) / len(KEYS)
    assert share == pytest.approx(fraction, abs=0.01)


def test_who_is_chosen_for_less_is_chosen_for_more() -> None:
    by_fraction = [{key for key in KEYS if is_canary_key(key, "v2", fraction)} for fraction in (0.05, 0.2, 0.7, 1.0)]
    assert all(less < more for less, more in pairwise(by_fraction))
    assert by_fraction[-1] == set(KEYS)


def test_the_choice_is_always_the_same_and_another_one_for_another_version() -> None:
    assert [is_canary_key(key, "v2", 0.5) for key in KEYS[:8]] == [is_canary_key(key, "v2", 0.5) for key in KEYS[:8]]
    both = sum(is_canary_key(key, "v2", 0.5) and is_canary_key(key, "v3", 0.5) for key in KEYS) / len(KEYS)
    assert both == pytest.approx(0.25, abs=0.02)
