"""Fixtures of this folder: Dagster's instance on the site, and a site of small runs."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.orchestration.instance import opened_instance
from kfm_pipelines_tests.site import Site, opened_site


@pytest.fixture
def instance(site: Site) -> Iterator[dg.DagsterInstance]:
    with opened_instance() as opened:
        yield opened


@pytest.fixture
def small(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """Four runs at a time, one key in each."""
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, KFM_BATCH_SIZE="1") as site:
        yield site
