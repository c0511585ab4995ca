"""A site that is looked at and not changed."""

from collections.abc import Iterator

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.site import Site, opened_site


@pytest.fixture(scope="module")
def untouched(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all commands of a module that do nothing but answer or refuse."""
    root = tmp_path_factory.mktemp("untouched")
    with opened_site(root / "site", stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        yield opened
