"""Fixtures of all tests: one embedded stack per session, exported as environment variables."""

import gc
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings as hypothesis_settings

from kfm_pipelines.aws.clients import s3_client, secrets_client, sns_client, sqs_client
from kfm_pipelines.local.stack import Stack, open_stack
from kfm_pipelines_tests.fixtures.aws.settings import dataset, datasets, settings
from kfm_pipelines_tests.fixtures.graph.server import describe_server, graph_server, graph_services, handmade
from kfm_pipelines_tests.fixtures.sites.dagster import instance, small
from kfm_pipelines_tests.fixtures.sites.database import database
from kfm_pipelines_tests.fixtures.sites.home_fixtures import home, new_home
from kfm_pipelines_tests.fixtures.sites.homes import temporary_home
from kfm_pipelines_tests.fixtures.sites.shared_site import untouched
from kfm_pipelines_tests.fixtures.sites.site import Site, create_template, opened_site
from kfm_pipelines_tests.fixtures.skip_hints import describe_skips
from kfm_pipelines_tests.fixtures.stores.stores import bucket, store, wire, wired

__all__ = [
    "bucket",
    "database",
    "dataset",
    "datasets",
    "graph_server",
    "graph_services",
    "handmade",
    "home",
    "instance",
    "new_home",
    "settings",
    "small",
    "store",
    "untouched",
    "wire",
    "wired",
]

# The same examples on every machine and in every run, so that a failure can be reproduced.
hypothesis_settings.register_profile("kfm", derandomize=True, deadline=None)
hypothesis_settings.load_profile("kfm")


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Starts a real Postgres and AWS emulator, whatever the shell points to."""
    with (
        temporary_home() as home,
        open_stack(home, environ={"KFM_GRAPH": "off"}) as opened,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in opened.environment.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        patch.setenv("KFM_GRAPH", "off")  # tests of the graph have a server of their own
        for client in (s3_client, secrets_client, sns_client, sqs_client):
            client.cache_clear()
        _turn_off_durability(opened.environment["KFM_POSTGRES_URL"])
        yield opened


def _turn_off_durability(url: str) -> None:
    """Turns off durability, because no test kills this server, and vacuuming, which would visit every database."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("ALTER SYSTEM SET checkpoint_flush_after = 0")
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def site_template(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> str:
    return create_template(stack.environment["KFM_POSTGRES_URL"], tmp_path_factory.mktemp("template"))


@pytest.fixture
def site(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """Opens an installation for one test, see `Site`."""
    with opened_site(tmp_path / "site", stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        yield opened


# What the processes of a run begin with: started last, one of these would keep a single process busy.
LONGEST = (
    ("load/test_storm.py",),
    ("test_demo_and_up.py", "browser/test_backfill.py"),
    ("test_daemon.py", "load/test_order.py"),
    ("test_runbooks.py",),
)


def pytest_sessionstart() -> None:
    """Accepts signals that a script ignores for its background jobs, as `kfm` does. Every process started here inherits
    that, and Dagster would wait half a minute for each copier of its output to end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def pytest_report_header() -> str:
    return describe_server()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names bytes by their argument: compressed ones contain the time, and all processes must agree on the names."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_finish() -> None:
    """Excludes everything loaded so far from garbage collection, which would scan it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of a whole site as slow, a database alone being cheap, and spreads the longest tests."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "site_template" in fixtures and "database" not in fixtures:
            item.add_marker("slow")
    items[:] = _spread(items)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Puts one group of the longest tests at the beginning of each share; xdist gives each process a share."""
    rest = [item for item in items if not str(item.path).endswith(tuple(chain(*LONGEST)))]
    share = -(-len(items) // len(LONGEST))
    spread: list[pytest.Item] = []
    for number, names in enumerate(LONGEST, start=1):
        spread += [item for item in items if str(item.path).endswith(names)]
        count = number * share - len(spread)
        spread += rest[:count]
        del rest[:count]
    return spread


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists why tests were skipped, with a hint for each reason."""
    reports = terminalreporter.stats.get("skipped", [])
    lines = describe_skips(report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple))
    if lines:
        terminalreporter.section("skipped tests")
        for line in lines:
            terminalreporter.line(line)
