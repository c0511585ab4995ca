"""Dagster's instance and its event log, with few statements and connections where Dagster's own have many.

`dagster.yaml` names the event log. A new run plans every asset for every key, and Dagster writes each plan by itself:
2,000 statements for 200 keys. Every event asks whether a table or column exists. Dagster also opens a connection for
every statement, which costs Postgres more than the statement; a process that executes runs itself keeps its connections
open. Like `dagster_internals`, this module uses private names of Dagster; the test of that module pins the version.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import DynamicPartitionsTable, SqlEventLogStorageTable
from dagster._serdes import ConfigurableClassData
from dagster_postgres import PostgresEventLogStorage
from dagster_postgres.utils import get_token_provider_from_config, pg_url_from_config
from sqlalchemy import and_, event, exc, func, select
from sqlalchemy.engine import Connection

from kfm_pipelines.orchestration.dagster_internals import storage_engines
from kfm_pipelines.state.database import may_have_died

POOL_RECYCLE_SECONDS = 300
MAX_OVERFLOW = 20  # connections beyond the kept one of each storage, closed after use
BATCHED = {
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
}
EVENTS_PER_BATCH = 200


class EventLog(PostgresEventLogStorage):
    """Stores the plan of a run in a few statements, and looks up a table or column only until it is found."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._found: set[str] = set()
        # Dagster reads it whenever it stores an event: in runs, in the daemon and in the webserver.
        os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", str(EVENTS_PER_BATCH))
        super().__init__(*args, **kwargs)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> "EventLog":
        return cls(
            inst_data=inst_data,
            postgres_url=pg_url_from_config(config_value),
            should_autocreate_tables=config_value.get("should_autocreate_tables", True),
            token_provider=get_token_provider_from_config(config_value),
        )

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        if not {event.get_dagster_event().event_type for event in events} <= BATCHED:
            super().store_event_batch(events)
            return
        # With values of its own for each row, SQLAlchemy would compile the statement anew each time.
        inserting = SqlEventLogStorageTable.insert().returning(
            SqlEventLogStorageTable.c.id, sort_by_parameter_order=True
        )
        with self._connect() as connection:
            ids = list(connection.execute(inserting, [self._event_to_row(event) for event in events]).scalars())
        assets = [(event, id_) for event, id_ in zip(events, ids, strict=True) if event.get_dagster_event().asset_key]
        latest = {event.get_dagster_event().asset_key: (event, id_) for event, id_ in assets}
        with self.index_transaction() as connection:
            self._store_asset_event_tags(connection, [event for event, _ in assets], [id_ for _, id_ in assets])
            for event, id_ in latest.values():
                self._store_asset_event(connection, event, id_)
        for event, id_ in zip(events, ids, strict=True):
            if event.dagster_event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED:
                self.store_asset_check_event(event, id_)

    def partition_places(self, name: str, keys: Sequence[str]) -> dict[str, int]:
        """Returns the place of each of these partitions, counted from the first of them, among all of that name."""
        table = DynamicPartitionsTable.c
        is_wanted = and_(table.partitions_def_name == name, table.partition.in_(keys))
        first, last = (select(end(table.id)).where(is_wanted).scalar_subquery() for end in (func.min, func.max))
        between = (
            select(table.partition, func.row_number().over(order_by=table.id).label("place"))
            .where(table.partitions_def_name == name, table.id.between(first, last))
            .subquery()
        )
        with self.index_connection() as connection:
            rows = connection.execute(select(between).where(between.c.partition.in_(keys)))
            return {row.partition: row.place for row in rows}

    def has_table(self, table_name: str) -> bool:
        return self._is_found(table_name) or self._remember(table_name, super().has_table(table_name))

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        return self._is_found(column_name) or self._remember(
            column_name, super()._has_asset_key_col_on_connection(conn, column_name)
        )

    def _is_found(self, name: str) -> bool:
        return name in self._found

    def _remember(self, name: str, found: bool) -> bool:
        if found:
            self._found.add(name)
        return found


def partition_places(instance: dg.DagsterInstance, name: str, keys: Sequence[str]) -> dict[str, int]:
    """Returns the place of each of these partitions among all of that name, as a range counts them."""
    log = instance.event_log_storage
    if isinstance(log, EventLog):
        return log.partition_places(name, keys)
    wanted = set(keys)
    return {key: place for place, key in enumerate(instance.get_dynamic_partitions(name)) if key in wanted}


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
