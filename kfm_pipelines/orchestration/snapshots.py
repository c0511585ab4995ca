"""Snapshots of the collections, as a job: every night, and whenever somebody starts one in the UI."""

import dagster as dg
from pydantic import Field

from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.snapshots import take_snapshot
from kfm_pipelines.orchestration.schedules import WhichDatasets, schedule
from kfm_pipelines.orchestration.workshop_resource import WorkshopResource


class SnapshotConfig(WhichDatasets):
    anyway: bool = Field(default=False, description="Also where nothing has changed since the last one.")


@dg.op(
    description="Writes all Items of each collection as one table, where something was published since the last one."
)
def snapshot_collections(context: dg.OpExecutionContext, config: SnapshotConfig, workshop: WorkshopResource) -> None:
    """One dataset after the other; what cannot be done is told at the end, after the others."""
    opened = workshop.open()
    chosen = [opened.datasets[config.dataset]] if config.dataset else list(opened.datasets.values())
    taken, problems = [], []
    for dataset in chosen:
        try:
            taken.append(take_snapshot(opened, dataset, anyway=config.anyway))
            context.log.info(str(taken[-1]))
        except KfmError as error:
            problems.append(f"{dataset.dataset}: {error}")
    metadata = {"items": sum(one.items for one in taken), "written": sum(not one.note for one in taken)}
    if problems:
        raise dg.Failure("\n".join(problems), metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@dg.job(name="kfm_snapshots", description="Writes each collection as one stac-geoparquet table.")
def snapshot_job() -> None:
    snapshot_collections()


snapshot_schedule = schedule("kfm_snapshots_nightly", snapshot_job, "0 3 * * *")
