"""A home for each test, or one for a whole module: making a cluster takes seconds on a slow disk, starting one less."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines_tests.homes import temporary_home


@pytest.fixture
def new_home() -> Iterator[Path]:
    with temporary_home() as home:
        yield home


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with temporary_home() as home:
        yield home
