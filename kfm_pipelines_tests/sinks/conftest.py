"""A site whose streamflow is also a table."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

DATASETS = ["usgs-streamflow"]


@pytest.fixture
def site(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, DATASETS, DATASETS) as opened:
        yield opened
