"""Assembles the definitions: five assets and a job for every declared dataset, a sixth where there is a candidate, a
sensor on the queues, schedules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.published import published_table
from kfm_pipelines.datasets import Dataset, load_datasets
from kfm_pipelines.declarations import Table
from kfm_pipelines.errors import KfmError
from kfm_pipelines.orchestration.alerting import failure_sensor
from kfm_pipelines.orchestration.assets import dataset_assets
from kfm_pipelines.orchestration.canary_asset import canary_assets
from kfm_pipelines.orchestration.handoffs import ParquetHandoffs
from kfm_pipelines.orchestration.kill_jobs import kill_job, unkill_job
from kfm_pipelines.orchestration.late_jobs import late_lane_job, late_lane_schedule
from kfm_pipelines.orchestration.naming import group_of
from kfm_pipelines.orchestration.provenance_jobs import provenance_job, provenance_schedule
from kfm_pipelines.orchestration.purges import purge_job, purge_schedule
from kfm_pipelines.orchestration.replaying import replay_sensor
from kfm_pipelines.orchestration.scans import scan_jobs, scan_schedules
from kfm_pipelines.orchestration.sensor import ingest_sensor
from kfm_pipelines.orchestration.snapshots import snapshot_job, snapshot_schedule
from kfm_pipelines.orchestration.tags import DATASET_TAG
from kfm_pipelines.orchestration.workshop_resource import WorkshopResource
from kfm_pipelines.settings import resources_directory


def build_definitions(
    resources: Path | None = None, resource_overrides: Mapping[str, Any] | None = None
) -> dg.Definitions:
    """Everything Dagster needs to know. Reads the declarations; touches no network and no database."""
    folder = resources or resources_directory()
    datasets = load_datasets(folder)
    workshop = WorkshopResource()
    jobs = [
        dg.define_asset_job(
            group_of(dataset),
            selection=dg.AssetSelection.groups(group_of(dataset)),
            description=f"All five stages of {dataset.dataset} for the chosen keys.",
            tags={DATASET_TAG: dataset.dataset},
        )
        for dataset in datasets.values()
    ]
    others: list[dg.JobDefinition] = [
        purge_job,
        provenance_job,
        kill_job,
        unkill_job,
        *scan_jobs,
        snapshot_job,
        late_lane_job,
    ]
    return dg.Definitions(
        assets=[
            asset
            for dataset in datasets.values()
            for asset in (*dataset_assets(dataset, _published(folder, dataset)), *canary_assets(dataset))
        ],
        jobs=[*jobs, *others],
        sensors=[
            ingest_sensor(jobs),
            replay_sensor(),
            failure_sensor([*(job.name for job in jobs), *(job.name for job in others)]),
        ],
        schedules=[purge_schedule, provenance_schedule, *scan_schedules, snapshot_schedule, late_lane_schedule],
        resources={
            "workshop": workshop,
            "handoffs": ParquetHandoffs(workshop=workshop),
            **(resource_overrides or {}),
        },
        # Five short steps over one batch: a process for each would cost more than the work.
        executor=dg.in_process_executor,
    )


def _published(resources: Path, dataset: Dataset) -> Table | None:
    """What readers get. A policy that is not there or not right stops the keys of its dataset, not all definitions."""
    try:
        return published_table(dataset, load_policy(resources, dataset.policy))
    except (KfmError, ValueError):
        return None
