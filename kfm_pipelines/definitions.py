"""The definitions that Dagster loads: assets, jobs, sensors, schedules, and the chores of a tick."""

from functools import cache
from pathlib import Path

import dagster as dg

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.catalog.collections.refresh import refresh_stale_collections
from kfm_pipelines.catalog.jobs import provenance_job, provenance_schedule, snapshot_job, snapshot_schedule
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset, load_datasets
from kfm_pipelines.dispatch.alerts import failure_sensor
from kfm_pipelines.dispatch.dispatch import Chores
from kfm_pipelines.dispatch.sensor import ingest_sensor
from kfm_pipelines.errors import KfmError
from kfm_pipelines.inbox.releases import announce_releases
from kfm_pipelines.inbox.unseen import warn_of_unseen
from kfm_pipelines.operations.canary.jobs import canary_assets
from kfm_pipelines.operations.dead_letters.collect import collect_and_export_letters
from kfm_pipelines.operations.kill_switch.jobs import kill_job, unkill_job
from kfm_pipelines.operations.replay.jobs import replay_sensor
from kfm_pipelines.operations.retention.jobs import purge_job, purge_schedule, restore_job
from kfm_pipelines.operations.scans.jobs import scan_jobs, scan_schedules
from kfm_pipelines.operations.status.gauges import emit_gauges
from kfm_pipelines.orchestration.dagster_internals import fork_runs
from kfm_pipelines.orchestration.names import group_of
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.tags import DATASET_TAG
from kfm_pipelines.settings import has_graph, resources_directory
from kfm_pipelines.sinks.assets import sink_assets
from kfm_pipelines.sinks.flush import flush_due
from kfm_pipelines.sinks.table.jobs import tables_job, tables_schedule
from kfm_pipelines.stages.assets.assets import dataset_assets
from kfm_pipelines.stages.publish.release import complete_visible_publications
from kfm_pipelines.watermarks.jobs import late_lane_job, late_lane_schedule

CHORES = Chores(
    with_queues=(collect_and_export_letters, warn_of_unseen),
    always=(complete_visible_publications, announce_releases, refresh_stale_collections, flush_due),
    gauges=emit_gauges,
)


def build_definitions(resources: Path | None = None) -> dg.Definitions:
    """Builds all definitions from the declarations, without network or database."""
    folder = resources or resources_directory()
    datasets = load_datasets(folder)
    jobs = [
        dg.define_asset_job(
            group_of(dataset),
            selection=dg.AssetSelection.groups(group_of(dataset)),
            description=f"All stages of {dataset.dataset} for the chosen keys.",
            tags={DATASET_TAG: dataset.dataset},
        )
        for dataset in datasets.values()
    ]
    others = (
        *(purge_job, provenance_job, kill_job, unkill_job, restore_job, snapshot_job, late_lane_job, tables_job),
        *scan_jobs,
    )
    return dg.Definitions(
        assets=[
            asset
            for dataset in datasets.values()
            for asset in (
                *dataset_assets(dataset, _load_published_table(folder, dataset)),
                *sink_assets(dataset, has_graph=has_graph()),
                *canary_assets(dataset),
            )
        ],
        jobs=[*jobs, *others],
        sensors=[
            ingest_sensor(jobs, CHORES),
            replay_sensor(),
            failure_sensor([*(job.name for job in jobs), *(job.name for job in others)]),
        ],
        schedules=[
            *(purge_schedule, provenance_schedule, snapshot_schedule, late_lane_schedule, tables_schedule),
            *scan_schedules,
        ],
        resources={"services": ServicesResource()},
        # Five short steps over one batch, which hand their tables on in memory.
        executor=dg.in_process_executor,
    )


def _load_published_table(resources: Path, dataset: Dataset) -> Table | None:
    """Returns the published table, None if the policy is missing or invalid: that must stop only its own dataset."""
    try:
        return published_table(dataset, load_policy(resources, dataset.policy))
    except (KfmError, ValueError):
        return None


@cache
def load_definitions() -> dg.Definitions:
    """Builds the definitions of this process once; a run that is forked from one that has them finds them."""
    return build_definitions()


@dg.definitions
def defs() -> dg.Definitions:
    fork_runs("kfm_pipelines.preload", "kfm_pipelines.preload_libraries")
    return load_definitions()
