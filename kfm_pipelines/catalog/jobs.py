"""Nightly jobs that write the snapshots of collections and the provenance graph."""

import dagster as dg
from pydantic import Field

from kfm_pipelines.catalog.collections.geoparquet_snapshot import take_snapshot
from kfm_pipelines.catalog.lineage.graph import write_graph
from kfm_pipelines.errors import KfmError
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import DatasetSelection, build_job, build_schedule


@dg.op(description="Puts the provenance of every current release into one graph, unless nothing was published since.")
def write_provenance_graph(context: dg.OpExecutionContext, services: ServicesResource) -> None:
    context.log.info("%s", write_graph(services.open()))


provenance_job = build_job(
    write_provenance_graph, "kfm_provenance", "Where everything that is published came from, as one graph."
)
provenance_schedule = build_schedule("kfm_provenance_nightly", provenance_job, "15 4 * * *")


class SnapshotConfig(DatasetSelection):
    anyway: bool = Field(default=False, description="Also where nothing has changed since the last one.")


@dg.op(
    description="Writes all Items of each collection as one table, where something was published since the last one."
)
def snapshot_collections(context: dg.OpExecutionContext, config: SnapshotConfig, services: ServicesResource) -> None:
    """Tries every dataset before it reports the failures."""
    opened = services.open()
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


snapshot_job = build_job(snapshot_collections, "kfm_snapshots", "Writes each collection as one stac-geoparquet table.")
snapshot_schedule = build_schedule("kfm_snapshots_nightly", snapshot_job, "0 3 * * *")
