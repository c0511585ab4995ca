"""The nightly upkeep of tables, in Dagster."""

import dagster as dg

from kfm_pipelines.errors import KfmError
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import DatasetSelection, build_job, build_schedule
from kfm_pipelines.sinks.table.maintain import maintain


@dg.op(description="Puts small files together, expires old snapshots, and removes files that nothing refers to.")
def maintain_tables(context: dg.OpExecutionContext, config: DatasetSelection, services: ServicesResource) -> None:
    """Tries every table before it reports the failures."""
    opened = services.open()
    chosen = [opened.datasets[config.dataset]] if config.dataset else list(opened.datasets.values())
    problems = []
    for dataset in chosen:
        if dataset.tables is None:
            continue
        try:
            context.log.info("%s", maintain(opened, dataset))
        except KfmError as error:
            problems.append(f"{dataset.dataset}: {error}")
    if problems:
        raise dg.Failure("\n".join(problems), allow_retries=False)


tables_job = build_job(maintain_tables, "kfm_tables", "Upkeep of the Iceberg tables.")
tables_schedule = build_schedule("kfm_tables_nightly", tables_job, "45 3 * * *")
