"""Runs whose process is gone: Dagster's local launcher cannot tell, our leases can."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from kfm_pipelines.dispatch.tables import is_silent
from kfm_pipelines.orchestration.names import STAGES, asset_key, group_of
from kfm_pipelines.services import Services

# Long enough for a slow start before the first claim and for the last words after the last key.
SILENT_AFTER = timedelta(minutes=5)


def reap(instance: dg.DagsterInstance, services: Services) -> list[str]:
    """Fail every run that has long been under way, holds no key and writes nothing; it would keep its slot for ever,
    and a serial dataset would wait for it."""
    filters = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED],
        updated_before=datetime.now(UTC) - SILENT_AFTER,
    )
    reaped = []
    for run in instance.get_runs(filters, limit=100):
        if _is_ours(run, services) and is_silent(services.database, run.run_id, SILENT_AFTER.total_seconds()):
            instance.report_run_failed(run, "The process of this run is gone; its keys are taken up by another.")
            reaped.append(run.run_id)
    return reaped


def _is_ours(run: dg.DagsterRun, services: Services) -> bool:
    """A run of a dataset's job, or one that a backfill made of its assets without a job."""
    selected = run.asset_selection or frozenset()
    return any(
        run.job_name == group_of(dataset) or not selected.isdisjoint(asset_key(dataset, stage) for stage in STAGES)
        for dataset in services.datasets.values()
    )
