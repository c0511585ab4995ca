"""The nightly job that releases the late lane; it can also be started from the UI."""

import dagster as dg

from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import build_job, build_schedule
from kfm_pipelines.watermarks.late_lane import LATE_LANE_JOB_NAME, release_by_rule


@dg.op(
    description="Releases late events that rule `replay` holds; the next tick requests runs over their keys.",
    retry_policy=dg.RetryPolicy(max_retries=3, delay=60),  # a key may be locked by its own publication
)
def release_late_events(context: dg.OpExecutionContext, services: ServicesResource) -> None:
    context.log.info("late events released: %d", len(release_by_rule(services.open())))


late_lane_job = build_job(
    release_late_events,
    LATE_LANE_JOB_NAME,
    "Releases late events that wait for the night. Quarantined ones stay: kfm late release.",
)
late_lane_schedule = build_schedule(f"{LATE_LANE_JOB_NAME}_nightly", late_lane_job, "15 2 * * *")
