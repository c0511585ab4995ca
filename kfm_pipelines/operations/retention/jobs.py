"""The nightly purge and garbage collection, and restoring partitions, as Dagster jobs."""

import dagster as dg
from pydantic import Field

from kfm_pipelines.console.options import read_instant
from kfm_pipelines.dispatch.partitions import delete_old_runs, restore_partitions, retire_partitions
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.retention.gc import collect_garbage
from kfm_pipelines.operations.retention.purge import purge
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import build_job, build_schedule


@dg.op(
    description="Deletes replaced events beyond the backfill window, payloads of old closed dead letters, refused "
    "tables and shadow files kept long enough, old findings and reports.",
    out=dg.Out(dg.Nothing),
)
def purge_what_is_past(context: dg.OpExecutionContext, services: ServicesResource) -> None:
    purged = purge(services.open())
    context.log.info("%d replaced events and %d payloads deleted", purged.events, purged.payloads)
    context.log.info("%d refused tables and %d shadow files deleted", purged.refused_tables, purged.shadows)
    context.log.info("%d findings and %d validation reports deleted", purged.findings, purged.reports)


@dg.op(
    ins={"purged": dg.In(dg.Nothing)},
    description="Retires the oldest partitions beyond KFM_PARTITIONS_KEPT of a dataset and deletes runs older than "
    "KFM_RUN_DAYS, so that Dagster's pages stay fast. What is published stays.",
    out=dg.Out(dg.Nothing),
)
def purge_dagster(context: dg.OpExecutionContext, services: ServicesResource) -> None:
    opened = services.open()
    context.log.info("%d partitions retired", retire_partitions(context.instance, opened))
    context.log.info("%d runs deleted", delete_old_runs(context.instance, opened))


@dg.op(
    ins={"purged": dg.In(dg.Nothing)},
    description="Removes objects that no Item refers to and no publication owns, and work folders of finished "
    "transactions. Fails when a catalog document cannot be read, because its references are unknown then.",
)
def collect_what_is_nobodys(context: dg.OpExecutionContext, services: ServicesResource) -> None:
    collected = collect_garbage(services.open())
    context.log.info("%d objects and %d work folders removed", len(collected.objects), len(collected.folders))
    if collected.left:
        context.log.warning("%d objects left because publications kept running", collected.left)
    if collected.refused:
        raise dg.Failure(f"no object was removed: {collected.refused}", allow_retries=False)


@dg.job(name="kfm_purge", description="Housekeeping: see KFM_INBOX_DAYS, KFM_PARTITIONS_KEPT and others.")
def purge_job() -> None:
    purged = purge_what_is_past()
    purge_dagster(purged)
    collect_what_is_nobodys(purged)


purge_schedule = build_schedule("kfm_purge_nightly", purge_job, "30 3 * * *")


class RestoreConfig(dg.Config):
    dataset: str = Field(description="The dataset's name, like usgs/streamflow.")
    start: str = Field(description="Start of the first window in UTC, like 2024-01-01.")
    end: str = Field(description="End, not included, like 2024-02-01.")


@dg.op(description="Registers the keys of the windows that begin between start and end.")
def register_again(context: dg.OpExecutionContext, config: RestoreConfig, services: ServicesResource) -> None:
    opened = services.open()
    try:
        start, end = read_instant(config.start), read_instant(config.end)
        dataset = opened.datasets[config.dataset]
        keys, restored = restore_partitions(context.instance, opened, dataset, start, end)
    except (KfmError, ValueError, OverflowError) as error:
        raise dg.Failure(f"nothing was restored: {error}", allow_retries=False) from error
    context.log.info("%d keys between these times; %d were not registered", keys, restored)


restore_job = build_job(
    register_again,
    "kfm_restore_partitions",
    "Makes old keys partitions again, to be chosen in a backfill. `kfm partitions restore` does the same.",
)
