"""A writer is stopped at every step: table and catalog agree after the next one, and nothing is left over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.sinks.flush import write_now
from kfm_pipelines.sinks.table import commit, files, maintain, tables
from kfm_pipelines.state import outbox
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines_tests.fixtures.sinks import assert_table_is_catalog, flush, publish_hours
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

# Everything that leaves a trace outside the process.
STEPS: tuple[tuple[Any, str], ...] = (
    (tables, "begin"),
    (SqlCatalog, "commit_table"),
    (files._File, "write"),
    (tables, "record_audited"),
    (tables, "end"),
    (outbox, "acknowledge"),
)
MAX_STEPS = 60


class Killed(BaseException):
    """Nothing handles it, as nothing handles SIGKILL."""


@contextmanager
def stopped_at(number: int, how: str) -> Iterator[Callable[[], int]]:
    """Stops this process before or after the step of that number, or lets its answer be lost. Yields a function that
    returns how many steps were begun."""
    begun = 0

    def watch(step: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            nonlocal begun
            own, begun = begun, begun + 1
            if own == number and how == "before":
                raise Killed
            answer = step(*arguments, **options)
            if own == number and how == "after":
                raise Killed
            if own == number and how == "lost":
                raise ServiceUnavailable("the answer was lost")
            return answer

        return watched

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, watch(getattr(owner, name)))
        yield lambda: begun


def count_steps(site: Site, act: Callable[[], object]) -> int:
    with stopped_at(-1, "never") as begun:
        act()
    return begun()


@pytest.mark.parametrize("how", ["before", "after", "lost"])
def test_a_publication_is_undone_or_completed(site: Site, how: str) -> None:
    """Steps of a key's second revision, with another key's rows in the table."""
    keys = publish_hours(site, range(2))
    flush(site)
    version, number, begun = 0, 0, MAX_STEPS
    while number < begun:
        version += 1
        publish_hours(site, [1], version=version)
        with stopped_at(number, how) as steps, suppress(Killed, ServiceUnavailable):
            write_now(site.services, site.dataset, Sink.TABLE, [keys[1]])
            begun = steps()
        flush(site)
        assert_table_is_catalog(site, keys)
        number += 1
        assert number < MAX_STEPS
    assert number >= 15


@pytest.mark.parametrize("how", ["before", "after", "lost"])
def test_a_first_publication_is_undone_or_completed(site: Site, how: str) -> None:
    """The table is created meanwhile."""
    [key] = publish_hours(site, [0])
    number, begun = 0, MAX_STEPS
    while number < begun:
        with stopped_at(number, how) as steps, suppress(Killed, ServiceUnavailable):
            write_now(site.services, site.dataset, Sink.TABLE, [key])
            begun = steps()
        flush(site)
        assert_table_is_catalog(site, [key])
        drop_table(site)
        outbox.request_all_published(site.services.database, Sink.TABLE, site.dataset.dataset)
        number += 1
        assert number < MAX_STEPS
    assert number >= 15


def drop_table(site: Site) -> None:
    site.services.database.execute("DELETE FROM iceberg.iceberg_tables")
    site.services.database.execute("DELETE FROM kfm.table_commits")
    site.services.store.remove("tables")


@pytest.mark.parametrize("how", ["before", "after", "lost"])
def test_upkeep_is_undone_or_completed(site: Site, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "SMALL_FILES", 1)
    keys = []
    for hour in range(2):
        keys += publish_hours(site, [hour])
        flush(site)
    for number in range(count_steps(site, lambda: maintain.maintain(site.services, site.dataset))):
        with stopped_at(number, how), suppress(Killed, ServiceUnavailable):
            maintain.maintain(site.services, site.dataset)
        with commit.writing(site.services, site.dataset):
            pass
        assert_table_is_catalog(site, keys)


def test_a_writer_whose_branch_was_undone_cannot_publish_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hung so long that Postgres ended its lock, and another took its place."""
    keys = publish_hours(site, range(2))
    flush(site)
    publish_hours(site, [1], version=1)
    write = commit._publish

    def overtaken(services: Any, table: Any, own: Any, write_rows: Any) -> None:
        def write_late(table: Any, branch: str) -> None:
            monkeypatch.setattr(commit, "_publish", write)
            commit.recover(services, site.dataset)
            write_rows(table, branch)

        write(services, table, own, write_late)

    monkeypatch.setattr(commit, "_publish", overtaken)
    assert write_now(site.services, site.dataset, Sink.TABLE, [keys[1]]) == {}
    assert_table_is_catalog(site, keys)
