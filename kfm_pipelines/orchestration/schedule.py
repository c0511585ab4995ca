"""Schedules in UTC that run from the start, and their dataset selection."""

import dagster as dg
from pydantic import Field


class DatasetSelection(dg.Config):
    dataset: str = Field(default="", description="Only this dataset; all of them when it is empty.")


def build_schedule(name: str, job: dg.JobDefinition, cron: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
