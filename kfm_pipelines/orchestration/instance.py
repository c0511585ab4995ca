"""Dagster's instance, as commands and workers open it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg

from kfm_pipelines.orchestration.dagster_internals import storage_engines
from kfm_pipelines.orchestration.storages import EventLog


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
