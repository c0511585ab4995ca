"""The nightly graph of provenance, as a job that can also be started from the UI."""

import dagster as dg

from kfm_pipelines.operations.provenance_graph import write_graph
from kfm_pipelines.orchestration.schedules import schedule
from kfm_pipelines.orchestration.workshop_resource import WorkshopResource


@dg.op(description="Puts the provenance of every current release into one graph, unless nothing was published since.")
def write_provenance_graph(context: dg.OpExecutionContext, workshop: WorkshopResource) -> None:
    context.log.info("%s", write_graph(workshop.open()))


@dg.job(name="kfm_provenance", description="Where everything that is published came from, as one graph.")
def provenance_job() -> None:
    write_provenance_graph()


provenance_schedule = schedule("kfm_provenance_nightly", provenance_job, "15 4 * * *")
