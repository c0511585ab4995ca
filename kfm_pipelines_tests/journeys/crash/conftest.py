"""Three keys in a bucket, published once without disturbance, and sites over them to disturb."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines_tests.fixtures.runs.crash import Undisturbed, undisturbed
from kfm_pipelines_tests.fixtures.sites.site import START, Site


@pytest.fixture(scope="session")
def three_keys(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    root = tmp_path_factory.mktemp("three-keys")
    return undisturbed(root, stack.environment["KFM_POSTGRES_URL"], site_template, [None, None, None])


@pytest.fixture(scope="session")
def red_between_green(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The second of three keys has the readings of another hour, so a gate refuses it."""
    root = tmp_path_factory.mktemp("red-between-green")
    _, of_another_hour = streamflow_object(START + timedelta(hours=9))
    return undisturbed(root, stack.environment["KFM_POSTGRES_URL"], site_template, [None, of_another_hour, None])


@pytest.fixture
def site(three_keys: Undisturbed, tmp_path: Path) -> Iterator[Site]:
    """A site with three keys to publish and their messages in its queue."""
    with three_keys.again(tmp_path / "site") as opened:
        yield opened
