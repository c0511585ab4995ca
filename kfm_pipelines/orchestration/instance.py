"""Dagster's instance for a process that executes runs itself; it keeps its connections to Postgres open.

By itself Dagster opens a connection for every statement, some 300 in a run of a few keys, which costs Postgres more
than the statements.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from sqlalchemy import event, exc

from kfm_pipelines.orchestration.dagster_internals import storage_engines
from kfm_pipelines.state.database import may_have_died

POOL_RECYCLE_SECONDS = 300
MAX_OVERFLOW = 20  # connections beyond the kept one of each storage, closed after use


@contextmanager
def open_instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.get() as instance:
        instance.optimize_for_webserver(
            statement_timeout=0, pool_recycle=POOL_RECYCLE_SECONDS, max_overflow=MAX_OVERFLOW
        )
        engines = storage_engines(instance)
        for engine in engines:
            event.listen(engine, "checkout", _check_connection)
        try:
            yield instance
        finally:
            for engine in engines:
                engine.dispose()


def _check_connection(connection: Any, _record: object, _proxy: object) -> None:
    """Makes SQLAlchemy open another connection if Postgres was restarted."""
    try:
        if may_have_died(connection.fileno()):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
    except connection.Error as error:
        raise exc.DisconnectionError from error
