"""Connections to Dagster's database are kept, replaced when dead, and closed at the end; schema lookups are cached."""

import dagster as dg
import sqlalchemy
from dagster_postgres.event_log import PostgresEventLogStorage
from sqlalchemy import event

from kfm_pipelines.orchestration.instance import open_instance
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site


def backend(instance: dg.DagsterInstance) -> int:
    """Postgres's process behind the next statement."""
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        return int(connection.execute(sqlalchemy.text("SELECT pg_backend_pid()")).scalar_one())


def is_there(site: Site, backend: int) -> bool:
    return bool(site.fetch(f"SELECT FROM pg_stat_activity WHERE pid = {backend}"))


def test_connections_are_kept_replaced_and_closed(site: Site) -> None:
    with open_instance() as instance:
        first = backend(instance)
        assert backend(instance) == first

        site.fetch(f"SELECT pg_terminate_backend({first})")
        assert eventually(lambda: not is_there(site, first))
        second = backend(instance)
        assert second != first
        assert instance.get_runs() == []

    assert eventually(lambda: not is_there(site, second))


def test_an_existing_table_or_column_is_looked_up_once(site: Site) -> None:
    with open_instance() as instance:
        storage = instance.event_log_storage
        assert isinstance(storage, PostgresEventLogStorage)
        statements: list[str] = []
        event.listen(storage._engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))

        assert storage.has_table("dynamic_partitions")
        assert storage.has_asset_key_index_cols()
        asked = len(statements)
        assert asked >= 2
        assert storage.has_table("dynamic_partitions")
        assert storage.has_asset_key_index_cols()
        assert len(statements) == asked

        assert not storage.has_table("added_later")
        site.services.database.execute("CREATE TABLE public.added_later ()")
        assert storage.has_table("added_later")
