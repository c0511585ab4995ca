"""Names and declarations of a test's own, so that tests share one emulator without meeting."""

import dataclasses
import secrets

import pytest

from kfm_pipelines.datasets import Dataset, Datasets, load_datasets
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.settings import Settings, load_settings


@pytest.fixture
def settings(stack: Stack) -> Settings:
    mark = secrets.token_hex(4)
    return dataclasses.replace(
        load_settings(),
        topic=f"topic-{mark}",
        notice_topic=f"notices-{mark}",
        queue=f"queue-{mark}",
        priority_queue=f"high-{mark}",
        dead_letter_queue=f"dead-{mark}",
        fifo_queue=f"queue-{mark}.fifo",
        fifo_dead_letter_queue=f"dead-{mark}.fifo",
    )


@pytest.fixture
def dataset(settings: Settings) -> Dataset:
    declared = load_datasets(settings.resources)["usgs/streamflow"]
    bucket = settings.topic.replace("topic", "bucket")
    return declared.model_copy(update={"input": declared.input.model_copy(update={"bucket": bucket})})


@pytest.fixture
def datasets(dataset: Dataset) -> Datasets:
    return Datasets({dataset.dataset: dataset})
