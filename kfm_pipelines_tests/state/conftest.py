"""A database of its own for each test, with the schema already in it."""

from collections.abc import Iterator

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.state.database import Database
from kfm_pipelines_tests.state.given import new_database


@pytest.fixture
def database(stack: Stack, site_template: str) -> Iterator[Database]:
    with new_database(stack, site_template) as opened:
        yield opened
