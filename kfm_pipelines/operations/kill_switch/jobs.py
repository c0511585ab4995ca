"""The kill switch as two jobs for the UI. They need no pool and go first in the run queue."""

import dagster as dg
from pydantic import Field

from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.kill_switch import switch
from kfm_pipelines.orchestration.dagster_internals import PRIORITY_TAG
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.schedule import build_job

HIGHEST_PRIORITY = {PRIORITY_TAG: "100"}


class KillSwitchConfig(dg.Config):
    dataset: str = Field(description="The dataset's name, like usgs/streamflow.")
    reason: str = Field(description="Why; shown wherever the dataset is.")
    by: str = Field(description="Your name: Dagster does not know who starts a run.")


@dg.op(description="Sets the switch, then waits for the swaps under way.")
def set_kill_switch(context: dg.OpExecutionContext, config: KillSwitchConfig, services: ServicesResource) -> None:
    try:
        switch.kill(services.open(), config.dataset, config.by, config.reason)
    except KfmError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    context.log.info("%s is killed: nothing of it is published until it is released", config.dataset)


@dg.op(description="Releases the switch; the next tick asks for runs over what is due.")
def release_kill_switch(context: dg.OpExecutionContext, config: KillSwitchConfig, services: ServicesResource) -> None:
    try:
        was_killed = switch.unkill(services.open(), config.dataset, config.by, config.reason)
    except KfmError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    context.log.info("%s %s", config.dataset, "is released" if was_killed else "was not killed; nothing changed")


kill_job = build_job(
    set_kill_switch,
    "kfm_kill_dataset",
    "Stops a dataset: when the run has succeeded nothing of it is published any more, whatever is under "
    "way. Events are still recorded; other datasets continue. `kfm kill` does the same without Dagster's run queue.",
    HIGHEST_PRIORITY,
)
unkill_job = build_job(
    release_kill_switch,
    "kfm_unkill_dataset",
    "Releases a killed dataset: everything that came due meanwhile is run and published.",
    HIGHEST_PRIORITY,
)
