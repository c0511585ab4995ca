"""Many runs and an upkeep write one table at once, on files and on S3: nothing is lost or doubled."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.services import Services
from kfm_pipelines.settings import load_settings
from kfm_pipelines.sinks.flush import write_now
from kfm_pipelines.sinks.table import commit, maintain
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines_tests.fixtures.sinks import assert_table_is_catalog, flush, publish_hours
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow
RUNS = 16
DATASETS = ["usgs-streamflow"]


@pytest.fixture(params=["files", "s3"])
def site(request: pytest.FixtureRequest, stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    settings = {} if request.param == "files" else {"KFM_STORE_URL": f"s3://tables-{uuid4().hex[:8]}/published"}
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, DATASETS, DATASETS, **settings) as opened:
        yield opened


def all_at_once(site: Site, jobs: list[Callable[[Services], object]]) -> list[object]:
    """Runs the jobs in threads, each with its own services as in a process."""
    together = threading.Barrier(len(jobs))

    def begin(job: Callable[[Services], object]) -> object:
        services = Services(load_settings(site.environment))
        try:
            together.wait()
            return job(services)
        finally:
            services.close()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(begin, jobs))


def test_sixteen_runs_and_an_upkeep_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "SMALL_FILES", 2)
    keys = publish_hours(site, range(RUNS))
    assert write_now(site.services, site.dataset, Sink.TABLE, keys[:2]) == {}
    assert write_now(site.services, site.dataset, Sink.TABLE, keys[2:4]) == {}

    def write(key: str) -> Callable[[Services], object]:
        return lambda services: write_now(services, site.dataset, Sink.TABLE, [key], "run")

    found = all_at_once(
        site, [*(write(key) for key in keys), lambda services: maintain.maintain(services, site.dataset)]
    )
    assert found[:-1] == [{}] * RUNS
    assert_table_is_catalog(site, keys)


def test_conflicts_with_writers_that_take_no_lock_are_retried(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when Postgres has ended a lock too early, or another program writes."""
    keys = publish_hours(site, range(4))
    assert write_now(site.services, site.dataset, Sink.TABLE, keys[:1]) == {}
    monkeypatch.setattr(commit, "advisory_lock", lambda *_: True)
    monkeypatch.setattr(commit, "recover", only_own(commit.recover))

    def write(key: str) -> Callable[[Services], object]:
        return lambda services: write_now(services, site.dataset, Sink.TABLE, [key], "run")

    all_at_once(site, [write(key) for key in keys[1:]])
    monkeypatch.undo()
    flush(site)  # what conflicted too often is in the outbox
    assert_table_is_catalog(site, keys)
    [conflicts] = site.fetch("SELECT count(*) AS n FROM kfm.table_commits WHERE outcome = 'abandoned'")
    assert conflicts["n"] > 0


def only_own(recover: Callable[..., None]) -> Callable[..., None]:
    return lambda services, dataset, only=None: recover(services, dataset, only) if only else None
