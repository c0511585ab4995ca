"""A derived dataset may show no more of its upstreams than they do, and must say what they say."""

import pytest

from kfm_pipelines.care.policies import Policy, load_policy
from kfm_pipelines.care.upstreams import refuse_more_open
from kfm_pipelines.declarations.dataset import Dataset, load_datasets
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.settings import shipped_path

RESOURCES = shipped_path("resources")
DATASETS = load_datasets(RESOURCES)
ATLAS = DATASETS["atlas/drought-streamflow"]
POLICY = load_policy(RESOURCES, ATLAS.policy)
DROUGHT = "drought/tribal-areas"


def shipped_policy(dataset: Dataset) -> Policy:
    return load_policy(RESOURCES, dataset.policy)


def refuse(dataset: Dataset = ATLAS, policy: Policy = POLICY, **drought: object) -> None:
    """Judges the dataset and its policy beside an upstream that is declared otherwise."""
    changed = {**DATASETS, DROUGHT: DATASETS[DROUGHT].model_copy(update=drought)}
    refuse_more_open(dataset, policy, changed, shipped_policy)


def test_the_shipped_one_owes_nothing_more() -> None:
    refuse()


def test_a_dataset_of_objects_owes_nothing() -> None:
    refuse(DATASETS["usgs/streamflow"])


def test_an_open_policy_cannot_show_what_an_upstream_masks() -> None:
    masked = {**DATASETS, DROUGHT: DATASETS[DROUGHT].model_copy(update={"policy": "heritage-sites"})}
    with pytest.raises(PolicyRefused, match=r"policy heritage-sites@1 masks it, and policy drought-streamflow@1 would"):
        refuse_more_open(ATLAS, POLICY, masked, shipped_policy)


def test_what_an_upstream_has_reviewed_is_reviewed_again() -> None:
    with pytest.raises(PolicyRefused, match="declare review: required"):
        refuse(review="required")
    refuse(ATLAS.model_copy(update={"review": "required"}), review="required")


def test_the_notice_of_a_nation_must_be_carried() -> None:
    with pytest.raises(PolicyRefused, match=f"cannot be made of {DROUGHT}: it is a nation's"):
        refuse(ATLAS.model_copy(update={"sovereignty": None}))


def test_no_label_may_be_lost() -> None:
    fewer = POLICY.model_copy(update={"labels": [label for label in POLICY.labels if label != "bc:provenance"]})
    with pytest.raises(PolicyRefused, match="must have its labels too, and lacks bc:provenance"):
        refuse(policy=fewer)


def test_columns_that_give_the_cells_must_be_published() -> None:
    streamflow, drought = ATLAS.input.upstream
    cells = streamflow.cells.model_copy(update={"longitude": "easting"})
    upstream = [streamflow.model_copy(update={"cells": cells}), drought]
    elsewhere = ATLAS.model_copy(update={"input": ATLAS.input.model_copy(update={"upstream": upstream})})
    with pytest.raises(PolicyRefused, match="'easting', which is to give the cells, is not one of its published"):
        refuse(elsewhere)
