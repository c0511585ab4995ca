"""A connection that Postgres has closed is replaced before anybody notices; a quiet one is used as it is."""

import psycopg

from kfm_pipelines.state.database import Database, may_have_died
from kfm_pipelines_tests.fixtures.sites.processes import eventually

OWN = "SELECT pg_backend_pid() AS pid"


def test_a_closed_connection_is_replaced(database: Database) -> None:
    [first] = database.fetch(OWN)
    assert database.fetch(OWN) == [first]
    with psycopg.connect(database._url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [first["pid"]])
        gone = "SELECT FROM pg_stat_activity WHERE pid = %s"
        assert eventually(lambda: not other.execute(gone, [first["pid"]]).fetchall())
    assert database.fetch(OWN) != [first]


def test_only_one_with_something_to_read_may_have_died(database: Database) -> None:
    with psycopg.connect(database._url, autocommit=True) as one:
        one.execute("SELECT 1")
        assert not may_have_died(one.fileno())
        one.execute("LISTEN news")
        with psycopg.connect(database._url, autocommit=True) as other:
            other.execute("NOTIFY news")
        assert eventually(lambda: may_have_died(one.fileno()))
        assert one.execute("SELECT 2").fetchone() == (2,)
