"""The nightly purge and garbage collection as a Dagster job."""

import dagster as dg

from kfm_pipelines.operations.retention.gc import collect_garbage
from kfm_pipelines.operations.retention.purge import purge
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import build_schedule


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


@dg.job(name="kfm_purge", description="Housekeeping: see KFM_INBOX_DAYS, KFM_PAYLOADS_KEPT, KFM_FINDINGS_DAYS.")
def purge_job() -> None:
    collect_what_is_nobodys(purge_what_is_past())


purge_schedule = build_schedule("kfm_purge_nightly", purge_job, "30 3 * * *")
