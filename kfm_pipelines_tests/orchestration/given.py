"""What the tests of this folder start from: a site whose dataset declares something, keys without objects, bad ones."""

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.local.samples.streamflow import streamflow_table
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.orchestration.build import build_definitions
from kfm_pipelines.orchestration.instance import opened_instance
from kfm_pipelines.orchestration.naming import asset_key, group_of
from kfm_pipelines.orchestration.sensor import tick
from kfm_pipelines.orchestration.workshop_resource import workshop_of_process
from kfm_pipelines.settings import load_settings
from kfm_pipelines.state.claims import Claims
from kfm_pipelines_tests.site import START, Site
from kfm_pipelines_tests.state.given import deliver, event_of_hour

OTHER = "usda/soil"


def declare(site: Site, **concurrency: Any) -> None:
    """The site's dataset declares this from now on; beside it there is another that declares nothing."""
    folder = site.workshop.settings.resources / "datasets"
    document = yaml.safe_load((folder / "usgs-streamflow.yaml").read_text(encoding="utf-8"))
    other = {**document, "dataset": OTHER, "key": {**document["key"], "source": "usda-soil"}}
    other["input"] = {**document["input"], "prefix": "usda/soil/"}
    (folder / "usda-soil.yaml").write_text(yaml.safe_dump(other), encoding="utf-8")
    document["concurrency"] = concurrency
    (folder / "usgs-streamflow.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    site.workshop.__dict__.pop("datasets", None)  # what a new process would not know either


def make_due(site: Site, *hours: int, priority: str = "normal") -> list[str]:
    """Keys of these hours as if their events had just come; there are no objects, so nothing can be published."""
    events = [event_of_hour(hour, priority=priority) for hour in hours]
    deliver(site.workshop.database, *events)
    return [event.key for event in events]


def due_since(site: Site, keys: list[str], minutes: float) -> None:
    site.workshop.database.execute(
        "UPDATE kfm.keys SET due_at = %(when)s WHERE key = ANY(%(keys)s)",
        {"keys": keys, "when": datetime.now(UTC) - timedelta(minutes=minutes)},
    )


def die_holding(site: Site, key: str, owner: str) -> None:
    """A run takes the key and is never heard of again."""
    Claims(site.workshop.database, owner, 3600).take(key)


def enqueue(
    site: Site,
    instance: dg.DagsterInstance,
    dataset: str = "usgs/streamflow",
    *,
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.QUEUED,
    tags: Mapping[str, str] | None = None,
) -> str:
    """A run of the dataset's job in Dagster's run queue, as the daemon finds it there."""
    name = group_of(site.workshop.datasets[dataset])
    job = build_definitions(site.workshop.settings.resources).resolve_job_def(name)
    location = RegisteredCodeLocationOrigin("kfm")
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), name)
    return instance.create_run_for_job(job, tags=tags, status=status, remote_job_origin=origin).run_id


def skip_reason(site: Site, instance: dg.DagsterInstance) -> str:
    """Why a tick asks for no run."""
    result = tick(instance, site.workshop)
    assert not result.run_requests
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def spoiled(hour: int) -> bytes:
    """The sample of an hour with a number in it that stands for none."""
    table = streamflow_table(START + timedelta(hours=hour))
    place = table.schema.get_field_index("discharge_cfs")
    values = [-999_999.0, *table.column(place).to_pylist()[1:]]
    return parquet(table.set_column(place, table.schema.field(place), pa.array(values, pa.float64())))


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def evaluations(check: str) -> list[dg.AssetCheckEvaluation]:
    """What Dagster was told about a gate, oldest first."""
    wanted = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    with opened_instance() as instance:
        events = [record.event_log_entry.dagster_event for record in instance.get_event_records(wanted, ascending=True)]
    found = [event.asset_check_evaluation_data for event in events if event]
    return [one for one in found if one.asset_check_key.name == check]


def declared_anew(site: Site, name: str, change: Callable[[dict[str, Any]], object]) -> Site:
    """The same site, after somebody has changed a declaration and reloaded it."""
    path = site.workshop.settings.resources / "datasets" / f"{name}.yaml"
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    workshop_of_process.cache_clear()
    return replace(site, workshop=Workshop(load_settings()))


def materialized(dataset: Dataset) -> dict[str, Mapping[str, Any]]:
    """What Dagster shows of each published key: the metadata of its last materialization."""
    with opened_instance() as instance:
        records = instance.fetch_materializations(asset_key(dataset, "publish"), limit=50).records
    found = [record.asset_materialization for record in reversed(records)]
    return {str(one.partition): one.metadata for one in found if one}
