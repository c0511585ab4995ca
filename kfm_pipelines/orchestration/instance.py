"""Dagster's instance for a process that executes runs itself: it keeps its connections to Postgres, and in mind which
tables it has.

By itself Dagster opens a connection for every statement, some three hundred in a run of a few keys, and that costs
Postgres more than the statements do. A quarter of them ask whether a table or a column is there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import sqlalchemy
from sqlalchemy import event, exc

from kfm_pipelines.state.database import may_have_died

POOL_RECYCLE_SECONDS = 300
MAX_OVERFLOW = 20  # connections beyond the kept one of each storage, closed after use


@contextmanager
def open_instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.get() as instance:
        instance.optimize_for_webserver(
            statement_timeout=0, pool_recycle=POOL_RECYCLE_SECONDS, max_overflow=MAX_OVERFLOW
        )
        for question in ("has_table", "_has_asset_key_col_on_connection"):
            _cache_positive_answers(instance.event_log_storage, question)
        engines = _engines(instance)
        for engine in engines:
            event.listen(engine, "checkout", _check_connection)
        try:
            yield instance
        finally:
            for engine in engines:
                engine.dispose()


def _cache_positive_answers(storage: object, method: str) -> None:
    """What is there stays; what is not may come. The last argument is what is asked for."""
    ask = getattr(storage, method, None)
    if ask is None:
        return
    there: set[str] = set()

    def asked(*arguments: Any) -> bool:
        if arguments[-1] not in there and ask(*arguments):
            there.add(arguments[-1])
        return arguments[-1] in there

    setattr(storage, method, asked)


def _engines(instance: dg.DagsterInstance) -> list[sqlalchemy.Engine]:
    """Dagster has no way of its own to close what it keeps; a storage without an engine keeps nothing."""
    storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
    engines = (getattr(storage, "_engine", None) for storage in storages)
    return [engine for engine in engines if engine is not None]


def _check_connection(connection: Any, _record: object, _proxy: object) -> None:
    """Postgres may have been restarted since; then SQLAlchemy opens another."""
    try:
        if may_have_died(connection.fileno()):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
    except connection.Error as error:
        raise exc.DisconnectionError from error
