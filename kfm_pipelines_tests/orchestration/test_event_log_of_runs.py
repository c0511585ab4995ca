"""Our event log stores what Dagster's own does, in fewer statements."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value
from dagster_postgres import PostgresEventLogStorage
from sqlalchemy import event

from kfm_pipelines.dispatch.dispatch import range_tags
from kfm_pipelines.dispatch.partitions import register_partitions
from kfm_pipelines.orchestration.instance import EventLog, partition_places
from kfm_pipelines.orchestration.names import STAGES, asset_key, partitions_of
from kfm_pipelines_tests.fixtures.runs.dispatch import enqueue
from kfm_pipelines_tests.fixtures.sites.site import Site

KEYS = 200
# Everything that is not a number given by Postgres.
CONTENTS = {
    "event_logs": "run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition",
    "asset_keys": "asset_key, last_materialization, last_run_id, asset_details, wipe_timestamp, "
    "last_materialization_timestamp, tags",
    "asset_event_tags": "asset_key, key, value, event_timestamp",
    "asset_check_executions": "asset_key, check_name, partition, run_id, execution_status, evaluation_event, "
    "evaluation_event_timestamp, materialization_event_storage_id",
}


@pytest.fixture
def keys(site: Site, instance: dg.DagsterInstance) -> list[str]:
    return list(register_partitions(instance, site.dataset, [site.key(hour) for hour in range(KEYS)]))


@contextmanager
def statements_of(instance: dg.DagsterInstance) -> Iterator[list[str]]:
    found: list[str] = []

    def listen(*arguments: Any) -> None:
        found.append(arguments[2])

    engine = instance.event_log_storage._engine  # type: ignore[attr-defined]
    event.listen(engine, "before_cursor_execute", listen)
    yield found
    event.remove(engine, "before_cursor_execute", listen)


def planned_events(instance: dg.DagsterInstance, run_id: str) -> list[EventLogEntry]:
    return list(
        reversed([record.event_log_entry for record in instance.get_records_for_run(run_id, ascending=False).records])
    )


def stored(site: Site) -> dict[str, list[dict[str, Any]]]:
    return {table: site.fetch(f"SELECT {columns} FROM {table} ORDER BY id") for table, columns in CONTENTS.items()}


@pytest.mark.slow
def test_the_tables_have_the_same_contents_as_with_dagsters_own(
    site: Site, instance: dg.DagsterInstance, keys: list[str]
) -> None:
    run_id = enqueue(site, instance, tags=range_tags(keys[:7]))
    events = planned_events(instance, run_id)
    assert len(events) == 5 * 7 + 5  # with the planned checks
    contents = []
    for storage in (PostgresEventLogStorage, EventLog):
        site.services.database.execute(f"TRUNCATE {', '.join(CONTENTS)}")
        storage(site.environment["KFM_DAGSTER_POSTGRES_URL"]).store_event_batch(events)
        contents.append(stored(site))
    assert contents[0] == contents[1]
    assert [len(rows) for rows in contents[0].values()] == [40, 5, 0, 5]


@pytest.mark.slow
def test_a_run_over_many_keys_is_created_with_few_statements(
    site: Site, instance: dg.DagsterInstance, keys: list[str]
) -> None:
    enqueue(site, instance, tags=range_tags(keys[:2]))  # loads what later runs find
    with statements_of(instance) as statements:
        began = time.monotonic()
        enqueue(site, instance, tags=range_tags(keys))
        seconds = time.monotonic() - began
    assert len(statements) < 40
    assert seconds < 5  # 0.3 s on a machine that does nothing else
    assert os.environ["DAGSTER_EVENT_BATCH_SIZE"] == "200"


def test_places_of_partitions_are_those_in_the_whole_list(site: Site, instance: dg.DagsterInstance) -> None:
    """A partition of another dataset, or one that was deleted, leaves no gap; one that is not asked for does."""
    for number, name in enumerate(("b", "a", "x", "d", "c", "e")):
        instance.add_dynamic_partitions("usgs_streamflow", [name])
        instance.add_dynamic_partitions("another", [f"between{number}", "a"])
    instance.delete_dynamic_partition("usgs_streamflow", "x")

    assert partition_places(instance, "usgs_streamflow", ["a", "d", "e", "new"]) == {"a": 1, "d": 2, "e": 4}
    assert partition_places(instance, "usgs_streamflow", []) == {}
    assert register_partitions(instance, site.dataset, ["z", "e", "y"]) == {"e": 1, "y": 2, "z": 3}


@pytest.mark.slow
def test_dagster_shows_the_keys_of_a_run_as_in_progress_and_failed(
    site: Site, instance: dg.DagsterInstance, keys: list[str]
) -> None:
    run_id = enqueue(site, instance, status=dg.DagsterRunStatus.STARTED, tags=range_tags(keys[2:5]))
    for stage in STAGES:
        of_asset = asset_key(site.dataset, stage)
        planned = instance.event_log_storage.get_latest_planned_materialization_info(of_asset, keys[3])
        assert planned is not None
        assert planned.run_id == run_id
        assert instance.event_log_storage.get_latest_planned_materialization_info(of_asset, keys[5]) is None
        assert statuses(site, instance, stage) == (set(keys[2:5]), set())

    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.report_run_failed(run)
    assert statuses(site, instance, "publish") == (set(), set(keys[2:5]))


def statuses(site: Site, instance: dg.DagsterInstance, stage: str) -> tuple[set[str], set[str]]:
    """Returns the partitions that the UI shows as in progress and as failed."""
    partitions = partitions_of(site.dataset)
    cached = get_and_update_asset_status_cache_value(instance, asset_key(site.dataset, stage), partitions, instance)
    assert cached is not None
    subsets = (
        cached.deserialize_in_progress_partition_subsets(partitions),
        cached.deserialize_failed_partition_subsets(partitions),
    )
    in_progress, failed = (set(one.get_partition_keys()) for one in subsets)
    return in_progress, failed
