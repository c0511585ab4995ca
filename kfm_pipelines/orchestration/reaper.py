"""Runs whose process is gone: Dagster's local launcher cannot tell, our leases can."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.orchestration.naming import group_of
from kfm_pipelines.state.dispatches import is_silent

# Long enough for a slow start before the first claim and for the last words after the last key.
SILENT_AFTER = timedelta(minutes=5)


def reap(instance: dg.DagsterInstance, workshop: Workshop) -> list[str]:
    """Fail every run that has long been under way, holds no key and writes nothing; it would keep its slot for ever."""
    reaped = []
    for dataset in workshop.datasets.values():
        filters = dg.RunsFilter(
            job_name=group_of(dataset),
            statuses=[dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED],
            updated_before=datetime.now(UTC) - SILENT_AFTER,
        )
        for run in instance.get_runs(filters, limit=100):
            if is_silent(workshop.database, run.run_id, SILENT_AFTER.total_seconds()):
                instance.report_run_failed(run, "The process of this run is gone; its keys are taken up by another.")
                reaped.append(run.run_id)
    return reaped
