"""Jobs of one op, schedules in UTC that run from the start, and their dataset selection."""

from collections.abc import Mapping

import dagster as dg
from pydantic import Field


class DatasetSelection(dg.Config):
    dataset: str = Field(default="", description="Only this dataset; all of them when it is empty.")


def build_job(
    op: dg.OpDefinition, name: str, description: str, tags: Mapping[str, str] | None = None
) -> dg.JobDefinition:
    return dg.GraphDefinition(name=name, node_defs=[op]).to_job(description=description, tags=tags)


def build_schedule(name: str, job: dg.JobDefinition, cron: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
