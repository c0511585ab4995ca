"""The schema comes by migration: once, again, by several at once, back and forth."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.process import free_port
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.settings import with_driver
from kfm_pipelines.state.database import Database, migrate
from kfm_pipelines_tests.fixtures.runs.keys import claimed, known_key
from kfm_pipelines_tests.fixtures.sites.site import create_database


@pytest.fixture
def empty(stack: Stack) -> str:
    return create_database(stack.environment["KFM_POSTGRES_URL"], f"m{uuid4().hex[:12]}", "template1")


def tables(url: str) -> set[str]:
    database = Database(url)
    try:
        rows = database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'kfm'")
        return {row["tablename"] for row in rows}
    finally:
        database.close()


def move(url: str, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", "kfm_pipelines.state:migrations")
    engine = create_engine(with_driver(url, "psycopg"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        if revision == "head":
            command.upgrade(config, revision)
        else:
            command.downgrade(config, revision)
    engine.dispose()


def works(url: str) -> bool:
    database = Database(url)
    try:
        return claimed(database, known_key(database)).epoch == 1
    finally:
        database.close()


def test_migrating_twice_is_migrating_once(empty: str) -> None:
    migrate(empty)
    first = tables(empty)
    migrate(empty)
    assert tables(empty) == first >= {"alembic_version", "inbox", "keys", "wal", "verdicts", "revisions"}
    assert works(empty)


def test_what_is_in_the_tables_survives_another_migration(empty: str) -> None:
    migrate(empty)
    assert works(empty)
    migrate(empty)
    database = Database(empty)
    assert len(database.fetch("SELECT FROM kfm.keys")) == 1
    database.close()


def test_several_may_migrate_at_once(empty: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(migrate, [empty] * 4)) == [None] * 4
    assert works(empty)


def test_down_and_up_again(empty: str) -> None:
    migrate(empty)
    before = tables(empty)
    move(empty, "base")
    assert tables(empty) <= {"alembic_version"}
    move(empty, "head")
    assert tables(empty) == before
    assert works(empty)


def test_what_was_published_before_there_were_pages_gets_its_pages(empty: str) -> None:
    migrate(empty)
    move(empty, "0004")
    database = Database(empty)
    for key in ("s:a:none:2025-12-04T00Z:v1", "s:a:none:2025-12-04T01Z:v1", "s:a:none:2025-12:v1"):
        database.execute(
            """
            INSERT INTO kfm.keys (key, dataset, window_start, window_end) VALUES (%(key)s, 's/a', now(), now() + '1 h')
            """,
            {"key": key},
        )
    database.execute(
        """
        INSERT INTO kfm.revisions
            (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id)
        SELECT key, 1, 1, 'a', 'b', 'c', 'd', 1, 1, 'run' FROM kfm.keys WHERE key LIKE '%T0%'
        """
    )
    database.execute("INSERT INTO kfm.collections (dataset, changed, written) VALUES ('s/a', 2, 2)")

    migrate(empty)

    pages = database.fetch("SELECT dataset, page, changed, written FROM kfm.collection_pages")
    assert pages == [{"dataset": "s/a", "page": "2025/12/04", "changed": 2, "written": 0}]
    assert database.fetch("SELECT changed > written AS stale FROM kfm.collections") == [{"stale": True}]
    database.close()


def test_a_database_that_is_away_is_one_sentence() -> None:
    with pytest.raises(ServiceUnavailable, match=r"^Postgres does not answer: "):
        migrate(f"postgresql://nobody@127.0.0.1:{free_port()}/none")


def test_objects_of_several_keys_survive_the_way_back(empty: str) -> None:
    """Before there were splits an object was in one key: the one that was published last stays."""
    migrate(empty)
    database = Database(empty)
    try:
        for key in ("a:b-one:none:2025:v1", "a:b-two:none:2025:v1"):
            database.execute(
                "INSERT INTO kfm.keys (key, dataset, window_start, window_end)"
                " VALUES (%(k)s, 'a/b', '2025-01-01', '2026-01-01')",
                {"k": key},
            )
            database.execute(
                "INSERT INTO kfm.ingest_state (dataset, asset_uri, key) VALUES ('a/b', 's3://a/b', %(k)s)", {"k": key}
            )
        move(empty, "0008")
        [row] = database.fetch("SELECT key FROM kfm.ingest_state")
        assert row["key"] == "a:b-two:none:2025:v1"
        move(empty, "head")
        assert database.fetch("SELECT key FROM kfm.ingest_state") == [row]
    finally:
        database.close()
