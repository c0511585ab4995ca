"""`kfm verify` compares tables with the catalog from the files alone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest

from kfm_pipelines.catalog.trust.trust_root import load_trust_root
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.verify import verify_all, verify_key
from kfm_pipelines.operations.verify.tables import WHAT
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.sinks import flush, publish_hours, the_table
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow


@pytest.fixture
def site(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    url, datasets = stack.environment["KFM_POSTGRES_URL"], ["usgs-streamflow"]
    with opened_site(tmp_path / "site", url, site_template, datasets, datasets) as opened:
        yield opened


def checks(site: Site, folder: Path, key: str | None = None) -> list[tuple[bool, str]]:
    """Returns the checks of tables in a store."""
    store = FileStore(folder)
    trust = load_trust_root(store, site.services.settings.signing_key, None)
    results = [verify_key(store, trust, key)] if key else [*verify_all(store, trust)]
    failed = [check for result in results for check in result.failed if check.what != WHAT]
    assert failed == []
    return [(check.ok, check.found) for result in results for check in result.checks if check.what == WHAT]


def test_a_table_that_agrees_also_where_it_was_copied(site: Site, tmp_path: Path) -> None:
    [key, _] = publish_hours(site, range(2))
    assert checks(site, site.data) == []  # there is no table yet
    flush(site)
    assert checks(site, site.data, key) == checks(site, site.data) == [(True, "")]
    copy = shutil.copytree(site.data, tmp_path / "a copy")
    shutil.rmtree(site.data / "tables")
    assert checks(site, copy) == [(True, "")]


def test_a_table_behind_the_catalog_or_changed(site: Site) -> None:
    keys = publish_hours(site, range(2))
    flush(site)
    publish_hours(site, [1], version=1)
    [(ok, found)] = checks(site, site.data)
    assert (ok, "the table has other rows than its file; if a publication is running" in found) == (False, True)
    assert checks(site, site.data, keys[0]) == [(True, "")]
    flush(site)
    files = [Path(unquote(urlsplit(task.file.file_path).path)) for task in the_table(site).scan().plan_files()]
    file = next(path for path in files if keys[1] in keys_of(path))
    rows = pq.read_table(file)
    pq.write_table(rows.slice(0, len(rows) - 1), file)
    [(ok, found)] = checks(site, site.data)
    assert not ok


def keys_of(path: Path) -> set[str]:
    return set(pq.read_table(path).column("kfm_key").to_pylist())
