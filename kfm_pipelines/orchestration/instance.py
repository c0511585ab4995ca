"""Dagster's instance, and its storages in Postgres with few statements and connections where Dagster's own have many.

`dagster.yaml` names the storages. Dagster opens a connection for every statement, which costs Postgres more than the
statement: here all storages of a process share a few that stay open. Before many statements Dagster asks whether a
table, a column or an index exists: here once it is found, no more. A new run plans every asset for every key, and
Dagster writes each plan by itself: here many at once. Like `dagster_internals`, this module uses private names of
Dagster; the test of that module pins the version.
"""

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self
from weakref import WeakValueDictionary

import dagster as dg
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import DynamicPartitionsTable, SqlEventLogStorageTable
from dagster._serdes import ConfigurableClassData
from dagster_postgres import PostgresEventLogStorage, PostgresRunStorage, PostgresScheduleStorage
from dagster_postgres.utils import get_token_provider_from_config, pg_url_from_config
from sqlalchemy import and_, create_engine, event, exc, func, select
from sqlalchemy.engine import Connection, Engine

from kfm_pipelines.orchestration.dagster_internals import storage_engines
from kfm_pipelines.state.database import may_have_died

CONNECTIONS_KEPT = 5
MAX_OVERFLOW = 20  # connections beyond these, closed after use
RECYCLE_SECONDS = 300
BATCHED = {
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
}
EVENTS_PER_BATCH = 200

_engines: WeakValueDictionary[tuple[str, int], Engine] = WeakValueDictionary()
_created: set[tuple[str, str]] = set()  # tables, by address and storage
_found: set[tuple[str, ...]] = set()  # tables, columns and indexes, by address


def shared_engine(postgres_url: str) -> Engine:
    """Returns the engine of all storages of this process on this database, while one of them is in use."""
    place = (postgres_url, os.getpid())  # a forked process must not use its parent's connections
    engine = _engines.get(place)
    if engine is None:
        engine = create_engine(
            postgres_url,
            isolation_level="AUTOCOMMIT",
            pool_size=CONNECTIONS_KEPT,
            max_overflow=MAX_OVERFLOW,
            pool_recycle=RECYCLE_SECONDS,
            pool_use_lifo=True,
        )
        event.listen(engine, "checkout", _check_connection)
        _engines[place] = engine
    return engine


def _check_connection(connection: Any, _record: object, _proxy: object) -> None:
    """Makes SQLAlchemy open another connection if Postgres was restarted."""
    try:
        if may_have_died(connection.fileno()):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
    except connection.Error as error:
        raise exc.DisconnectionError from error


def _remembered(ask: Callable[..., bool]) -> Callable[..., bool]:
    """Asks the database until the answer is yes."""

    @functools.wraps(ask)
    def remembered(storage: Any, *arguments: Any) -> bool:
        names = [argument for argument in arguments if not isinstance(argument, Connection)]
        question = (storage.postgres_url, type(storage).__name__, ask.__name__, *names)
        if question not in _found and ask(storage, *arguments):
            _found.add(question)
        return question in _found

    return remembered


class _SharedConnections:
    """What the three storages have in common; each is also one of Dagster's."""

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,
        inst_data: ConfigurableClassData | None = None,
        token_provider: Any = None,
    ) -> None:
        place = (postgres_url, type(self).__name__)
        create = should_autocreate_tables and place not in _created
        super().__init__(postgres_url, create, inst_data, token_provider)  # type: ignore[call-arg]
        if should_autocreate_tables:
            _created.add(place)
        if token_provider is None:  # tokens end, so Dagster's own engine asks for one with each connection
            self._engine = shared_engine(postgres_url)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        return cls(
            inst_data=inst_data,
            postgres_url=pg_url_from_config(config_value),
            should_autocreate_tables=config_value.get("should_autocreate_tables", True),
            token_provider=get_token_provider_from_config(config_value),
        )


class RunStorage(_SharedConnections, PostgresRunStorage):
    has_built_index = _remembered(PostgresRunStorage.has_built_index)
    has_run_stats_index_cols = _remembered(PostgresRunStorage.has_run_stats_index_cols)
    has_bulk_actions_selector_cols = _remembered(PostgresRunStorage.has_bulk_actions_selector_cols)
    has_backfill_id_column = _remembered(PostgresRunStorage.has_backfill_id_column)
    has_bulk_action_job_name_column = _remembered(PostgresRunStorage.has_bulk_action_job_name_column)
    has_backfill_tags_table = _remembered(PostgresRunStorage.has_backfill_tags_table)


class ScheduleStorage(_SharedConnections, PostgresScheduleStorage):
    has_built_index = _remembered(PostgresScheduleStorage.has_built_index)
    has_instigators_table = _remembered(PostgresScheduleStorage.has_instigators_table)
    _has_instigators_table = _remembered(PostgresScheduleStorage._has_instigators_table)
    _has_asset_daemon_asset_evaluations_table = _remembered(
        PostgresScheduleStorage._has_asset_daemon_asset_evaluations_table
    )


class EventLog(_SharedConnections, PostgresEventLogStorage):
    """Stores the plan of a run in a few statements."""

    has_secondary_index = _remembered(PostgresEventLogStorage.has_secondary_index)
    has_table = _remembered(PostgresEventLogStorage.has_table)
    _has_asset_key_col_on_connection = _remembered(PostgresEventLogStorage._has_asset_key_col_on_connection)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Dagster reads it whenever it stores an event: in runs, in the daemon and in the webserver.
        os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", str(EVENTS_PER_BATCH))
        super().__init__(*args, **kwargs)

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


@contextmanager
def open_instance() -> Iterator[dg.DagsterInstance]:
    """Yields Dagster's instance; at the end no connection of this process to its database is left open."""
    with dg.DagsterInstance.get() as instance:
        engines = storage_engines(instance)
        try:
            yield instance
        finally:
            for engine in engines:
                engine.dispose()


def partition_places(instance: dg.DagsterInstance, name: str, keys: Sequence[str]) -> dict[str, int]:
    """Returns the place of each of these partitions among all of that name, as a range counts them."""
    log = instance.event_log_storage
    if isinstance(log, EventLog):
        return log.partition_places(name, keys)
    wanted = set(keys)
    return {key: place for place, key in enumerate(instance.get_dynamic_partitions(name)) if key in wanted}
