"""The nightly release of the late lane, as a job that can also be started from the UI."""

import dagster as dg

from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import build_schedule
from kfm_pipelines.watermarks.late_lane_release import LATE_LANE_JOB_NAME, release_by_rule


@dg.op(
    description="Lets late events into their keys that rule `replay` holds; the next tick asks for runs over them.",
    # A key may be locked by its own publication.
    retry_policy=dg.RetryPolicy(max_retries=3, delay=60),
)
def release_late_events(context: dg.OpExecutionContext, services: ServicesResource) -> None:
    context.log.info("%d late events released", len(release_by_rule(services.open())))


@dg.job(
    name=LATE_LANE_JOB_NAME,
    description="Releases what came late and waits for the night. What is in quarantine stays: kfm late release.",
)
def late_lane_job() -> None:
    release_late_events()


late_lane_schedule = build_schedule(f"{LATE_LANE_JOB_NAME}_nightly", late_lane_job, "15 2 * * *")
