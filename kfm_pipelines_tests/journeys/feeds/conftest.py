"""A site whose datasets are fed by providers, besides those of every site."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.sites.site import RECEIVED, Site, opened_site


@pytest.fixture
def site(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    with opened_site(tmp_path / "site", stack.environment["KFM_POSTGRES_URL"], site_template, RECEIVED) as opened:
        yield opened
